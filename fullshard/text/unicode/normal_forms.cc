// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/unicode/normal_forms.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <vector>

#include "fullshard/text/unicode/block_table.h"
#include "fullshard/text/unicode/unicode_data.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

// Hangul syllables are computed: (leading * 21 + vowel) * 28 + trailing.
constexpr uint32_t kSyllables = 0xAC00, kNumSyllables = 11172;
constexpr uint32_t kLeading = 0x1100, kVowels = 0x1161, kTrailing = 0x11A7;
constexpr uint32_t kNumLeading = 19, kNumVowels = 21, kNumTrailing = 28;

bool is_syllable(uint32_t character) { return character - kSyllables < kNumSyllables; }

// A bit of a character is set if it is not itself in the form, or may join the preceding character.
constexpr uint8_t bit_of(NormalForm form) {
  return static_cast<uint8_t>(1 << static_cast<int>(form));
}
constexpr uint8_t kEveryForm = 0x0F;
constexpr uint8_t kComposed = bit_of(NormalForm::nfc) | bit_of(NormalForm::nfkc);
constexpr uint8_t kDecomposed = bit_of(NormalForm::nfd) | bit_of(NormalForm::nfkd);
constexpr uint8_t kCompatible = bit_of(NormalForm::nfkc) | bit_of(NormalForm::nfkd);

using Parts = std::vector<uint32_t>;

class FormTables {
 public:
  static const FormTables& get() {
    static const FormTables tables;
    return tables;
  }

  bool stands(uint32_t character, NormalForm form) const {
    return ((*changes_)[character] & bit_of(form)) == 0;
  }
  uint8_t combining_class(uint32_t character) const { return (*orders_)[character]; }
  void decompose(uint32_t character, bool compatible, Parts& parts) const;
  uint32_t compose(uint32_t first, uint32_t second) const;  // 0: they do not compose

 private:
  FormTables();
  void read_canonical(std::vector<uint8_t>& changes);
  void read_compatible(std::vector<uint8_t>& changes);
  void mark_hangul(std::vector<uint8_t>& changes);
  std::vector<uint8_t> read_orders(std::vector<uint8_t>& changes);

  std::unordered_map<uint32_t, Parts> canonical_, compatible_;
  std::unordered_map<uint64_t, uint32_t> pairs_;
  std::unique_ptr<BlockTable<uint8_t>> changes_, orders_;
};

FormTables::FormTables() {
  std::vector<uint8_t> changes(BlockTable<uint8_t>::kCharacters, 0);
  read_canonical(changes);
  read_compatible(changes);
  mark_hangul(changes);
  orders_ = std::make_unique<BlockTable<uint8_t>>(read_orders(changes));
  changes_ = std::make_unique<BlockTable<uint8_t>>(changes);
}

struct Entry {
  uint32_t character = 0;
  bool composes = false;
  Parts parts;
};

Entry read_entry(unicode::Numbers& numbers, uint32_t previous) {
  Entry entry;
  entry.character = previous + numbers.next();
  const uint32_t head = numbers.next();
  entry.composes = (head & 1) != 0;
  auto part = static_cast<int64_t>(entry.character);
  for (uint32_t i = 0; i < head / 2; ++i) {
    part += numbers.next_signed();
    entry.parts.push_back(static_cast<uint32_t>(part));
  }
  return entry;
}

void FormTables::read_canonical(std::vector<uint8_t>& changes) {
  std::vector<Entry> composing;
  std::unordered_map<std::u32string, uint32_t> whole;  // parts -> the character that they compose
  const auto key = [](const Parts& parts, size_t count) {
    return std::u32string(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(count));
  };
  uint32_t previous = 0;
  for (unicode::Numbers numbers(unicode::kCanonical); !numbers.done();) {
    Entry entry = read_entry(numbers, previous);
    previous = entry.character;
    changes[previous] |= entry.composes ? kDecomposed : kEveryForm;
    whole.emplace(key(entry.parts, entry.parts.size()), previous);
    canonical_.emplace(previous, entry.parts);
    if (entry.composes) composing.push_back(std::move(entry));
  }
  for (const Entry& entry : composing) {
    const uint32_t last = entry.parts.back();
    const uint32_t first = entry.parts.size() == 2
                               ? entry.parts[0]
                               : whole.at(key(entry.parts, entry.parts.size() - 1));
    pairs_.emplace(uint64_t{first} << 32 | last, entry.character);
    changes[last] |= kComposed;
  }
}

void FormTables::read_compatible(std::vector<uint8_t>& changes) {
  uint32_t previous = 0;
  for (unicode::Numbers numbers(unicode::kCompatible); !numbers.done();) {
    Entry entry = read_entry(numbers, previous);
    previous = entry.character;
    changes[previous] |= kCompatible;
    compatible_.emplace(previous, std::move(entry.parts));
  }
}

void FormTables::mark_hangul(std::vector<uint8_t>& changes) {
  for (uint32_t i = 0; i < kNumSyllables; ++i) changes[kSyllables + i] |= kDecomposed;
  for (uint32_t i = 0; i < kNumVowels; ++i) changes[kVowels + i] |= kComposed;
  for (uint32_t i = 1; i < kNumTrailing; ++i) changes[kTrailing + i] |= kComposed;
}

std::vector<uint8_t> FormTables::read_orders(std::vector<uint8_t>& changes) {
  std::vector<uint8_t> orders(BlockTable<uint8_t>::kCharacters, 0);
  uint32_t character = 0;
  for (unicode::Numbers numbers(unicode::kCombiningRuns); !numbers.done();) {
    character += numbers.next();
    const uint32_t length = numbers.next();
    const auto order = static_cast<uint8_t>(numbers.next());
    for (uint32_t i = 0; i < length; ++i, ++character) {
      orders[character] = order;
      changes[character] |= kEveryForm;
    }
  }
  return orders;
}

void FormTables::decompose(uint32_t character, bool compatible, Parts& parts) const {
  if (is_syllable(character)) {
    const uint32_t index = character - kSyllables;
    parts.push_back(kLeading + index / (kNumVowels * kNumTrailing));
    parts.push_back(kVowels + index / kNumTrailing % kNumVowels);
    if (index % kNumTrailing != 0) parts.push_back(kTrailing + index % kNumTrailing);
    return;
  }
  const auto append = [&](const std::unordered_map<uint32_t, Parts>& table) {
    const auto found = table.find(character);
    if (found == table.end()) return false;
    parts.insert(parts.end(), found->second.begin(), found->second.end());
    return true;
  };
  if (compatible && append(compatible_)) return;
  if (!append(canonical_)) parts.push_back(character);
}

uint32_t FormTables::compose(uint32_t first, uint32_t second) const {
  if (first - kLeading < kNumLeading && second - kVowels < kNumVowels) {
    return kSyllables + ((first - kLeading) * kNumVowels + (second - kVowels)) * kNumTrailing;
  }
  if (is_syllable(first) && (first - kSyllables) % kNumTrailing == 0 && second > kTrailing &&
      second < kTrailing + kNumTrailing) {
    return first + (second - kTrailing);
  }
  const auto found = pairs_.find(uint64_t{first} << 32 | second);
  return found == pairs_.end() ? 0 : found->second;
}

// Sorts marks that follow a base by combining class; equal classes keep their order.
void reorder(const FormTables& tables, Parts& parts) {
  for (size_t i = 0; i < parts.size();) {
    if (tables.combining_class(parts[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < parts.size() && tables.combining_class(parts[end]) != 0) ++end;
    std::stable_sort(parts.begin() + static_cast<std::ptrdiff_t>(i),
                     parts.begin() + static_cast<std::ptrdiff_t>(end), [&](uint32_t a, uint32_t b) {
                       return tables.combining_class(a) < tables.combining_class(b);
                     });
    i = end;
  }
}

void compose_all(const FormTables& tables, Parts& parts) {
  size_t base = parts.size(), kept = 0;  // base: among the kept ones; none yet
  uint8_t last_class = 0;                // of the last kept one after the base
  for (const uint32_t part : Parts(parts)) {
    const uint8_t order = tables.combining_class(part);
    const bool adjacent = base + 1 == kept;
    if (base < kept && (adjacent || last_class < order)) {
      if (const uint32_t joined = tables.compose(parts[base], part)) {
        parts[base] = joined;
        continue;
      }
    }
    if (order == 0) base = kept;
    last_class = order;
    parts[kept++] = part;
  }
  parts.resize(kept);
}

void append_run(const FormTables& tables, std::string_view run, NormalForm form,
                std::string& result) {
  const bool compatible = (bit_of(form) & kCompatible) != 0;
  Parts parts;
  for (size_t i = 0; i < run.size();) tables.decompose(next_character(run, i), compatible, parts);
  reorder(tables, parts);
  if ((bit_of(form) & kComposed) != 0) compose_all(tables, parts);
  for (const uint32_t part : parts) append_utf8(result, part);
}

}  // namespace

std::string to_normal_form(std::string_view text, NormalForm form) {
  const FormTables& tables = FormTables::get();
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  size_t copied = 0, last = 0;  // last: the beginning of the last character that stays as it is
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      last = i++;
      continue;
    }
    if (tables.stands(next_character(text, i), form)) {
      last = begin;
      continue;
    }
    while (i < text.size()) {  // the run ends before the next character that stays as it is
      size_t next = i;
      if (tables.stands(next_character(text, next), form)) break;
      i = next;
    }
    last = std::max(last, copied);
    result.append(text.substr(copied, last - copied));
    append_run(tables, text.substr(last, i - last), form, result);
    copied = last = i;
  }
  result.append(text.substr(copied));
  return result;
}

}  // namespace fullshard::text
