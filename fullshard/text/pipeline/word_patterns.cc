// SPDX-License-Identifier: Apache-2.0
// The expressions with which GPT-2, Llama 3 and Qwen2 cut text into words, written by hand: each
// look at a character decides, without backtracking.
#include <array>

#include "fullshard/text/pipeline/pattern.h"
#include "fullshard/text/unicode/unicode.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {

const std::string_view kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string_view kQwen2Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

constexpr std::string_view kLlama3Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr uint16_t kKinds = kLetter | kNumber | kSpace;  // none of them: "other"

// The text with the kind of the character at each place.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  struct Look {
    uint16_t kind = 0;
    uint32_t length = 0;  // in bytes; 0: the end of the text
  };

  Look look(size_t at) const {
    if (at >= text_.size()) return {};
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 0x80) return {ascii_[byte], 1};
    size_t end = at;
    const uint32_t character = next_character(text_, end);
    return {static_cast<uint16_t>(characters_.mask(character) & kKinds),
            static_cast<uint32_t>(end - at)};
  }

  // Where the run of this kind ends, after at most `most` characters.
  size_t skip(size_t at, uint16_t kind, int most = -1) const {
    for (Look next = look(at); next.length > 0 && next.kind == kind && most != 0; next = look(at)) {
      at += next.length;
      --most;
    }
    return at;
  }

  size_t skip_newlines(size_t at) const {
    while (at < text_.size() && is_newline(at)) ++at;
    return at;
  }

  bool is_newline(size_t at) const { return text_[at] == '\r' || text_[at] == '\n'; }
  std::string_view text() const { return text_; }

 private:
  static const std::array<uint16_t, 128>& ascii_kinds() {
    static const auto kinds = [] {
      std::array<uint16_t, 128> result{};
      for (uint32_t c = 0; c < 128; ++c) result[c] = Characters::get().mask(c) & kKinds;
      return result;
    }();
    return kinds;
  }

  std::string_view text_;
  const Characters& characters_ = Characters::get();
  const std::array<uint16_t, 128>& ascii_ = ascii_kinds();
};

// 's 't 're 've 'm 'll 'd: its end, or `at`. Ignoring case, s is also U+017F.
size_t contraction(std::string_view text, size_t at, bool any_case) {
  if (text[at] != '\'' || at + 1 >= text.size()) return at;
  const auto letter = [&](size_t i) {
    if (i >= text.size()) return '\0';
    return any_case && text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] + 32) : text[i];
  };
  const char first = letter(at + 1), second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'r' || first == 'v') && second == 'e') return at + 3;
  if (first == 'l' && second == 'l') return at + 3;
  if (any_case && text.substr(at + 1).starts_with("\u017F")) return at + 3;
  return at;
}

// \s+(?!\S)|\s+ : white space up to `end`, but the last character stays with a following word.
size_t spaces(const Reader& reader, size_t at, size_t end) {
  if (end == reader.text().size()) return end;
  const size_t last = previous_begin(reader.text(), end);
  return last > at ? last : end;
}

size_t gpt2_word(const Reader& reader, size_t at) {
  const size_t short_form = contraction(reader.text(), at, false);
  if (short_form > at) return short_form;
  const auto first = reader.look(at);
  if (first.kind != kSpace) return reader.skip(at + first.length, first.kind);
  const auto second = reader.look(at + first.length);
  if (reader.text()[at] == ' ' && second.length > 0 && second.kind != kSpace) {
    return reader.skip(at + 1 + second.length, second.kind);
  }
  return spaces(reader, at, reader.skip(at, kSpace));
}

// Llama 3 with three digits, Qwen2 with one.
size_t llama3_word(const Reader& reader, size_t at, int digits) {
  const size_t short_form = contraction(reader.text(), at, true);
  if (short_form > at) return short_form;
  const auto first = reader.look(at);
  const size_t behind = at + first.length;
  if (first.kind == kLetter) return reader.skip(behind, kLetter);
  if (first.kind == kNumber) return reader.skip(at, kNumber, digits);
  const auto second = reader.look(behind);
  if (!reader.is_newline(at) && second.length > 0 && second.kind == kLetter) {
    return reader.skip(behind + second.length, kLetter);
  }
  if (first.kind == 0) return reader.skip_newlines(reader.skip(behind, 0));
  if (reader.text()[at] == ' ' && second.length > 0 && second.kind == 0) {
    return reader.skip_newlines(reader.skip(behind + second.length, 0));
  }
  const size_t end = reader.skip(at, kSpace);
  for (size_t newline = end; newline > at; --newline) {
    if (reader.is_newline(newline - 1)) return newline;
  }
  return spaces(reader, at, end);
}

enum class Words { gpt2, llama3, qwen2 };

class WordPattern : public Pattern {
 public:
  explicit WordPattern(Words words) : words_(words) {}

  void find(std::string_view text, std::vector<Match>& found) const override {
    const Reader reader(text);
    for (size_t at = 0; at < text.size();) {
      const size_t end = words_ == Words::gpt2     ? gpt2_word(reader, at)
                         : words_ == Words::llama3 ? llama3_word(reader, at, 3)
                                                   : llama3_word(reader, at, 1);
      found.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(end), true});
      at = end;
    }
  }

 private:
  Words words_;
};

}  // namespace

std::unique_ptr<Pattern> known_pattern(std::string_view expression) {
  if (expression == kGpt2Expression) return std::make_unique<WordPattern>(Words::gpt2);
  if (expression == kLlama3Expression) return std::make_unique<WordPattern>(Words::llama3);
  if (expression == kQwen2Expression) return std::make_unique<WordPattern>(Words::qwen2);
  return nullptr;
}

}  // namespace fullshard::text
