// SPDX-License-Identifier: Apache-2.0
// A tokenizer that is easy to follow by hand: byte b is token 10 + b.
#pragma once

#include <string>

#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard::testing {

struct ToyTraits {
  bool joins_blank_lines = false;  // "\n\n" is token 7, as in GPT-2's vocabulary
  bool marks_beginning = false;    // token 8 before every text, as sentencepiece's space
  bool cuts_left = false;          // truncation_side
};

class ToyTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kPad = 0, kEos = 1, kCls = 3, kSep = 4, kMask = 5, kBlankLine = 7,
                           kBeginning = 8, kBytes = 10;

  explicit ToyTokenizer(ToyTraits traits = {}) : traits_(traits) {}

  std::vector<int32_t> encode(std::string_view text, bool special) const override {
    std::vector<int32_t> ids;
    if (traits_.marks_beginning) ids.push_back(kBeginning);
    for (size_t i = 0; i < text.size(); ++i) {
      if (traits_.joins_blank_lines && text.substr(i, 2) == "\n\n") {
        ids.push_back(kBlankLine);
        ++i;
      } else {
        ids.push_back(kBytes + static_cast<unsigned char>(text[i]));
      }
    }
    if (special) ids.push_back(kEos);
    return ids;
  }
  std::string decode(const std::vector<int32_t>& ids, bool) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id >= kBytes) text += static_cast<char>(id - kBytes);
      if (id == kBlankLine) text += "\n\n";
    }
    return text;
  }
  int64_t vocabulary() const override { return kBytes + 256; }
  std::optional<int32_t> id_of(std::string_view) const override { return std::nullopt; }
  std::optional<std::string> token_of(int32_t id) const override { return std::to_string(id); }
  std::optional<int32_t> bos() const override { return std::nullopt; }
  std::optional<int32_t> eos() const override { return kEos; }
  std::optional<int32_t> pad() const override { return kPad; }
  std::optional<int32_t> mask() const override { return kMask; }
  std::optional<int32_t> cls() const override { return kCls; }
  std::optional<int32_t> sep() const override { return kSep; }
  bool is_special(int32_t id) const override { return id < kBytes; }
  bool cuts_left() const override { return traits_.cuts_left; }

 private:
  ToyTraits traits_;
};

}  // namespace fullshard::testing
