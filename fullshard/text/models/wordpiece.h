// SPDX-License-Identifier: Apache-2.0
// BERT's model: the longest token first, then the longest that continues it, and so on.
#pragma once

#include <string>

#include "fullshard/text/models/byte_trie.h"
#include "fullshard/text/models/model.h"

namespace fullshard::text {

struct WordPieceOptions {
  std::string unknown = "[UNK]";
  std::string continuing_prefix = "##";
  size_t longest_word = 100;  // in characters; longer ones are unknown
};

class WordPiece : public Model {
 public:
  WordPiece(Vocabulary vocabulary, WordPieceOptions options);

  // One unknown token if the word cannot be cut into tokens.
  void tokenize(std::string_view word, Workspace& workspace,
                std::vector<int32_t>& ids) const override;

 private:
  WordPieceOptions options_;
  int32_t unknown_;
  ByteTrie tokens_;
  uint32_t continuing_;  // the node below which continuing tokens are
};

}  // namespace fullshard::text
