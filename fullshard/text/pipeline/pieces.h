// SPDX-License-Identifier: Apache-2.0
// A text on its way through the steps that split it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/text/pipeline/growth_limit.h"
#include "fullshard/text/pipeline/pattern.h"

namespace fullshard::text {

struct TextPiece {
  static constexpr int32_t kWord = -1;

  uint32_t begin = 0;
  uint32_t end = 0;
  int32_t token = kWord;  // the id of an added token, which no step touches
  bool is_first = false;  // it is at the beginning of the original text
};

// How a step treats the matches of its pattern. The names are those of tokenizer.json.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// The pieces are never empty and never overlap; steps that rewrite text write a new one.
class Pieces {
 public:
  std::string text;
  std::vector<TextPiece> list;
  GrowthLimit limit;  // of the text

  std::string_view of(const TextPiece& piece) const {
    return std::string_view(text).substr(piece.begin, piece.end - piece.begin);
  }
  void clear() {
    text.clear();
    list.clear();
  }

  // Splits each word: find(word, matches) appends matches and the parts between them.
  template <class Find>
  void split(SplitBehavior behavior, const Find& find) {
    next_list_.clear();
    for (const TextPiece& piece : list) {
      if (piece.token != TextPiece::kWord) {
        next_list_.push_back(piece);
        continue;
      }
      matches_.clear();
      find(of(piece), matches_);
      append_split(piece, behavior);
    }
    list.swap(next_list_);
  }

  // Rewrites each word: write(piece, word, text) appends to the text. Tokens keep their place.
  template <class Write>
  void rewrite(const Write& write) {
    next_list_.clear();
    next_text_.clear();
    for (const TextPiece& piece : list) {
      const auto begin = static_cast<uint32_t>(next_text_.size());
      if (piece.token == TextPiece::kWord) write(piece, of(piece), next_text_);
      limit.check_bytes(next_text_.size());
      const auto end = static_cast<uint32_t>(next_text_.size());
      if (piece.token != TextPiece::kWord || begin < end) {
        next_list_.push_back({begin, end, piece.token, piece.is_first});
      }
    }
    list.swap(next_list_);
    text.swap(next_text_);
  }

 private:
  void append_split(const TextPiece& piece, SplitBehavior behavior);
  void append_part(const TextPiece& piece, uint32_t begin, uint32_t end) {
    if (begin == end) return;
    next_list_.push_back(
        {piece.begin + begin, piece.begin + end, TextPiece::kWord, piece.is_first && begin == 0});
  }

  std::string next_text_;
  std::vector<TextPiece> next_list_;
  std::vector<Match> matches_;
};

}  // namespace fullshard::text
