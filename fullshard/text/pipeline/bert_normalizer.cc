// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/pipeline/normalizer.h"
#include "fullshard/text/unicode/unicode.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

// The blocks that BERT's authors regard as Chinese, with the gap at U+2B820 of the original.
bool is_chinese(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(BertNormalizerOptions options) : options_(options) {}

  void rewrite(std::string& text, const GrowthLimit&) const override {
    if (options_.clean_text || options_.chinese) text = cleaned(text);
    if (options_.strip_accents) text = without_accents(text);
    if (options_.lowercase) text = lowercase(text);
  }

 private:
  std::string cleaned(std::string_view text) const {
    const Characters& characters = Characters::get();
    std::string result;
    result.reserve(text.size() + text.size() / 4);
    for (size_t i = 0; i < text.size();) {
      const uint32_t character = next_character(text, i);
      if (options_.clean_text) {
        if (character == '\t' || character == '\n' || character == '\r') {
          result += ' ';
          continue;
        }
        const uint16_t mask = characters.mask(character);
        if ((mask & kDropped) != 0) continue;
        if ((mask & kSpace) != 0) {
          result += ' ';
          continue;
        }
      }
      if (character < 0x80) {
        result += static_cast<char>(character);
      } else if (options_.chinese && is_chinese(character)) {
        result += ' ';
        append_utf8(result, character);
        result += ' ';
      } else {
        append_utf8(result, character);
      }
    }
    return result;
  }

  static std::string without_accents(std::string_view text) {
    const Characters& characters = Characters::get();
    const std::string parts = to_normal_form(text, NormalForm::nfd);
    std::string result;
    result.reserve(parts.size());
    for (size_t i = 0; i < parts.size();) {
      const size_t begin = i;
      const uint32_t character = next_character(parts, i);
      if (character < 0x80) {
        result += static_cast<char>(character);
      } else if (!characters.has(character, kNonspacing)) {
        result.append(parts, begin, i - begin);
      }
    }
    return result;
  }

  BertNormalizerOptions options_;
};

}  // namespace

NormalizerPointer bert_normalizer(BertNormalizerOptions options) {
  return std::make_unique<BertNormalizer>(options);
}

}  // namespace fullshard::text
