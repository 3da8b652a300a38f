// SPDX-License-Identifier: Apache-2.0
// Unigram: among all ways to cut a word into tokens, finds the one with the largest sum of scores.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "fullshard/text/models/byte_trie.h"
#include "fullshard/text/models/model.h"

namespace fullshard::text {

struct UnigramOptions {
  int32_t unknown = Vocabulary::kNone;
  double unknown_score = 0;    // of a character that is not a token
  bool byte_fallback = false;  // unknown characters as their bytes
  // Keeps sums in single precision and looks ids up once, as the sentencepiece library does;
  // otherwise works as the tokenizers package.
  bool as_sentencepiece = false;
};

class Unigram : public Model {
 public:
  // Scores by id; tokens without a score (absent from `scores` or nullopt) are not used for
  // cutting.
  Unigram(Vocabulary vocabulary, std::vector<std::optional<double>> scores, UnigramOptions options);

  void tokenize(std::string_view word, Workspace& workspace,
                std::vector<int32_t>& ids) const override;

 private:
  struct Edge {
    double score = 0;
    size_t end = 0;
    int32_t id = 0;
  };

  void find_path(std::string_view word, std::vector<Workspace::Step>& steps) const;
  void offer(std::vector<Workspace::Step>& steps, size_t begin, const Edge& edge) const;
  void append_unknown(std::string_view text, std::vector<int32_t>& ids) const;

  UnigramOptions options_;
  ByteTrie tokens_;
  std::vector<double> scores_;
  std::array<int32_t, 256> bytes_;
};

}  // namespace fullshard::text
