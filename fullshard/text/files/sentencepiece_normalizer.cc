// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/files/sentencepiece.h"
#include "fullshard/text/models/byte_trie.h"
#include "fullshard/text/unicode/space_mark.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

class SentencePieceNormalizer : public Normalizer {
 public:
  explicit SentencePieceNormalizer(const SentencePieceFile& file)
      : add_prefix_(file.add_dummy_prefix),
        remove_extra_(file.remove_extra_spaces),
        as_suffix_(file.space_as_suffix),
        space_(file.escape_spaces ? kSpaceMark : " ") {
    if (!file.charsmap.empty()) charsmap_.emplace(file.charsmap);
    for (const auto& piece : file.pieces) {
      if (piece.kind == SentencePieceFile::Kind::user_defined) kept_.insert(piece.text, 0);
    }
  }

  void rewrite(std::string& text, const GrowthLimit& limit) const override {
    std::string_view rest = text;
    if (remove_extra_) {
      for (Prefix prefix = next(rest); !rest.empty() && prefix.text == " "; prefix = next(rest)) {
        rest.remove_prefix(prefix.length);
      }
    }
    std::string result;
    if (!rest.empty()) {
      result.reserve(rest.size() * 2);
      if (add_prefix_ && !as_suffix_) result += space_;
      append(rest, result, limit);
      while (remove_extra_ && result.ends_with(space_))
        result.resize(result.size() - space_.size());
      if (add_prefix_ && as_suffix_) result += space_;
    }
    text = std::move(result);
  }

 private:
  // The beginning of a text, and its replacement.
  struct Prefix {
    size_t length = 0;
    std::string_view text;
  };

  Prefix next(std::string_view text) const {
    if (text.empty()) return {};
    if (!kept_.empty() && kept_.begins(text[0])) {
      const auto match = kept_.longest(text);
      if (match.length > 0) return {match.length, text.substr(0, match.length)};
    }
    if (charsmap_) {
      if (const auto rule = charsmap_->longest(text)) return {rule->length, rule->replacement};
    }
    const size_t length = utf8_length(text[0]);
    return {length, text.substr(0, length)};
  }

  void append(std::string_view rest, std::string& result, const GrowthLimit& limit) const {
    bool after_space = remove_extra_;
    while (!rest.empty()) {
      Prefix prefix = next(rest);
      rest.remove_prefix(prefix.length);
      while (after_space && prefix.text.starts_with(' ')) prefix.text.remove_prefix(1);
      if (prefix.text.empty()) continue;
      for (const char letter : prefix.text) {
        if (letter == ' ') {
          result += space_;
        } else {
          result += letter;
        }
      }
      limit.check_bytes(result.size());
      after_space = remove_extra_ && prefix.text.ends_with(' ');
    }
  }

  bool add_prefix_, remove_extra_, as_suffix_;
  std::string space_;
  std::optional<Charsmap> charsmap_;
  ByteTrie kept_;  // user-defined pieces, which are never changed
};

}  // namespace

NormalizerPointer sentencepiece_normalizer(const SentencePieceFile& file) {
  return std::make_unique<SentencePieceNormalizer>(file);
}

}  // namespace fullshard::text
