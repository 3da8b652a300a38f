// SPDX-License-Identifier: Apache-2.0
// Texts, or pairs of texts, with the class that each belongs to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fullshard/data/dataset.h"
#include "fullshard/data/documents/class_rows.h"
#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard::data {

struct ClassDataOptions {
  std::vector<std::string> files = {};  // tables or JSON
  std::string field = "text";
  std::vector<std::string> classes = {};  // the model's, in the order of their numbers
  int64_t sequence_length = 512;          // the longer text of a longer pair is cut
  int64_t max_samples = 0;
  int64_t vocabulary = 0;
  int num_threads = 0;
  int64_t block_bytes = kBlockBytes;
};

// Example k: row k as [CLS] text [SEP], or [CLS] text [SEP] pair [SEP] with the token type 1 from
// the pair on; its label is a class. A batch is padded to its longest row, rounded up to a multiple
// of 8 as far as the sequence length allows. Tokens are kept in memory.
class ClassData final : public Dataset {
 public:
  ClassData(const ClassDataOptions& options, const Tokenizer& tokenizer);

  int64_t size() const override { return std::ssize(labels_); }
  TokenBatch batch(std::span<const int64_t> examples, uint64_t seed, int64_t epoch) const override;
  int64_t max_token() const override { return max_token_; }
  std::string describe() const override;
  std::vector<std::string> warnings() const override;

 private:
  std::span<const int32_t> tokens_of(int64_t example) const;

  std::string name_;
  int64_t sequence_length_;
  size_t num_classes_;
  int64_t pad_;
  int64_t max_token_ = 0;
  int64_t num_cut_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<size_t> ends_;         // of examples among the tokens
  std::vector<size_t> first_sizes_;  // tokens of type 0 of each
  std::vector<int64_t> labels_;
};

}  // namespace fullshard::data
