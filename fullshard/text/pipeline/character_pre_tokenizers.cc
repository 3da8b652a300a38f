// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizers that split by the kind of each character.
#include "fullshard/text/pipeline/pre_tokenizer.h"
#include "fullshard/text/unicode/unicode.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

// Each character with one of the bits is a separate match.
void find_single(std::string_view word, uint16_t bits, std::vector<Match>& found) {
  const Characters& characters = Characters::get();
  uint32_t done = 0;
  for (size_t i = 0; i < word.size();) {
    const auto begin = static_cast<uint32_t>(i);
    if (characters.has(next_character(word, i), bits)) {
      append_match(found, done, begin, static_cast<uint32_t>(i));
    }
  }
  if (done < word.size()) found.push_back({done, static_cast<uint32_t>(word.size()), false});
}

class CharacterSplit : public PreTokenizer {
 public:
  CharacterSplit(uint16_t bits, SplitBehavior behavior) : bits_(bits), behavior_(behavior) {}
  void apply(Pieces& pieces) const override {
    pieces.split(behavior_, [&](std::string_view word, std::vector<Match>& found) {
      find_single(word, bits_, found);
    });
  }

 private:
  uint16_t bits_;
  SplitBehavior behavior_;
};

// Drops white space and makes each punctuation mark a word, in one pass.
class Bert : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    pieces.split(SplitBehavior::removed, [](std::string_view word, std::vector<Match>& found) {
      const Characters& characters = Characters::get();
      uint32_t begin = 0;
      const auto end_word = [&](size_t end) {
        if (begin < end) found.push_back({begin, static_cast<uint32_t>(end), false});
      };
      for (size_t i = 0; i < word.size();) {
        const size_t at = i;
        const uint16_t mask = characters.mask(next_character(word, i));
        if ((mask & (kSpace | kPunctuation)) == 0) continue;
        end_word(at);
        begin = static_cast<uint32_t>((mask & kSpace) != 0 ? i : at);
        if ((mask & kSpace) == 0) {
          end_word(i);
          begin = static_cast<uint32_t>(i);
        }
      }
      end_word(word.size());
    });
  }
};

// \w+|[^\w\s]+
class Whitespace : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    pieces.split(SplitBehavior::removed, [](std::string_view word, std::vector<Match>& found) {
      const Characters& characters = Characters::get();
      uint16_t run = 0;
      for (size_t i = 0; i < word.size();) {
        const auto begin = static_cast<uint32_t>(i);
        const uint16_t mask = characters.mask(next_character(word, i));
        const uint16_t kind = (mask & kWord) != 0 ? kWord : (mask & kSpace) != 0 ? kSpace : 0;
        if (found.empty() || kind != run) found.push_back({begin, begin, kind == kSpace});
        found.back().end = static_cast<uint32_t>(i);
        run = kind;
      }
    });
  }
};

}  // namespace

PreTokenizerPointer bert_pre_tokenizer() { return std::make_unique<Bert>(); }
PreTokenizerPointer whitespace_pre_tokenizer() { return std::make_unique<Whitespace>(); }
PreTokenizerPointer whitespace_split_pre_tokenizer() {
  return std::make_unique<CharacterSplit>(kSpace, SplitBehavior::removed);
}
PreTokenizerPointer digits_pre_tokenizer(bool individual) {
  return std::make_unique<CharacterSplit>(
      kNumeric, individual ? SplitBehavior::isolated : SplitBehavior::contiguous);
}
PreTokenizerPointer punctuation_pre_tokenizer(SplitBehavior behavior) {
  return std::make_unique<CharacterSplit>(kPunctuation, behavior);
}

}  // namespace fullshard::text
