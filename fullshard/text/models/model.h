// SPDX-License-Identifier: Apache-2.0
// A model computes the ids of one word.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "fullshard/text/models/vocabulary.h"

namespace fullshard::text {

// Memory that a model uses while it works, kept between words so that none is allocated.
struct Workspace {
  struct Symbol {
    int32_t id = 0;
    int32_t previous = -1;
    int32_t next = -1;  // -1: the last; kGone: merged into the one before
  };
  struct Step {  // of a best path: the token that ends here
    double score = 0;
    int32_t begin = -1;  // -1: not reached
    int32_t id = 0;
  };

  std::vector<int32_t> ids;
  std::vector<Symbol> symbols;
  std::vector<uint64_t> candidates;
  std::vector<Step> steps;
  std::string letters;
};

// Immutable, so thread-safe.
class Model {
 public:
  explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~Model() = default;

  // Appends the ids of `word`, which is not empty.
  virtual void tokenize(std::string_view word, Workspace& workspace,
                        std::vector<int32_t>& ids) const = 0;

  // Whether a word that is cut before each U+2581 after another character has the ids of its parts.
  // Cut words are short and more often in the cache.
  virtual bool may_cut_at_spaces() const { return false; }

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
};

}  // namespace fullshard::text
