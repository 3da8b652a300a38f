// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/models/vocabulary.h"

#include "fullshard/base/error.h"
#include "fullshard/text/models/text_hash.h"

namespace fullshard::text {
namespace {

// Far beyond any vocabulary; keeps a hostile id from reserving memory.
constexpr int32_t kLargestId = 1 << 26;

}  // namespace

void Vocabulary::insert(std::string_view token, int32_t id) {
  if (id < 0 || id > kLargestId) {
    fail_as(ErrorKind::input, "vocabulary: the id of \"{}\" is {}, expected 0 to {}", token, id,
            kLargestId);
  }
  if ((entries_.size() + 1) * 2 > slots_.size()) grow();
  const uint64_t hash = text_hash(token);
  int32_t& slot = slots_[place(token, hash)];
  if (slot == kNone) {
    slot = static_cast<int32_t>(entries_.size());
    entries_.push_back({letters_.size(), static_cast<uint32_t>(token.size()), id, hash});
    letters_.append(token);
  }
  entries_[static_cast<size_t>(slot)].id = id;
  if (by_id_.size() <= static_cast<size_t>(id)) by_id_.resize(static_cast<size_t>(id) + 1, kNone);
  by_id_[static_cast<size_t>(id)] = slot;
}

int32_t Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return kNone;
  const int32_t entry = slots_[place(token, text_hash(token))];
  return entry == kNone ? kNone : entries_[static_cast<size_t>(entry)].id;
}

std::optional<std::string_view> Vocabulary::token_of(int32_t id) const {
  if (id < 0 || id >= size()) return std::nullopt;
  const int32_t entry = by_id_[static_cast<size_t>(id)];
  if (entry == kNone) return std::nullopt;
  return text(entries_[static_cast<size_t>(entry)]);
}

size_t Vocabulary::place(std::string_view token, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    if (slots_[i] == kNone) return i;
    const Entry& entry = entries_[static_cast<size_t>(slots_[i])];
    if (entry.hash == hash && text(entry) == token) return i;
  }
}

void Vocabulary::grow() {
  slots_.assign(slots_.empty() ? 16 : slots_.size() * 2, kNone);
  const size_t mask = slots_.size() - 1;
  for (size_t entry = 0; entry < entries_.size(); ++entry) {
    size_t i = entries_[entry].hash & mask;
    while (slots_[i] != kNone) i = (i + 1) & mask;
    slots_[i] = static_cast<int32_t>(entry);
  }
}

std::string byte_token(uint8_t byte) { return fmt::format("<0x{:02X}>", byte); }

std::optional<uint8_t> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char digit : token.substr(3, 2)) {
    value *= 16;
    if (digit >= '0' && digit <= '9') {
      value += digit - '0';
    } else if ((digit >= 'A' && digit <= 'F') || (digit >= 'a' && digit <= 'f')) {
      value += (digit | 32) - 'a' + 10;
    } else {
      return std::nullopt;
    }
  }
  return static_cast<uint8_t>(value);
}

}  // namespace fullshard::text
