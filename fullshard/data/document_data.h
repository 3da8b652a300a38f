// SPDX-License-Identifier: Apache-2.0
// Next-token prediction inside documents: conversations, completions and texts that are kept apart.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fullshard/data/dataset.h"
#include "fullshard/data/documents/document_encoder.h"
#include "fullshard/data/text/text_blocks.h"
#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard::data {

struct DocumentOptions {
  std::vector<std::string> files = {};  // JSON or text
  std::string field = "text";           // for rows that are texts
  DocumentEncoderOptions encoder = {};
  int64_t sequence_length = 512;  // inputs; what is longer is cut, texts into pieces
  bool packs = false;             // several documents in a sequence
  int64_t max_samples = 0;        // rows; 0: all
  int num_threads = 0;            // 0: as many as there are allowed cores
  int64_t block_bytes = kBlockBytes;
};

// Example k: document k, or the documents of packed sequence k. Inputs are all tokens of a document
// but the last; labels are the tokens one further, -100 where they are not learnt: no label belongs
// to another document. The rows of a batch are padded at their end to the longest, rounded up to a
// multiple of 8 as far as the sequence length allows. Documents with nothing to learn are left out.
// Tokens are kept in memory.
class DocumentData final : public Dataset {
 public:
  DocumentData(const DocumentOptions& options, const Tokenizer& tokenizer);

  int64_t size() const override { return std::ssize(sequences_); }
  TokenBatch batch(std::span<const int64_t> examples, uint64_t seed, int64_t epoch) const override;
  int64_t max_token() const override { return max_token_; }
  std::string describe() const override;
  std::vector<std::string> warnings() const override;

 private:
  void add(const EncodedDocument& document);
  void add_piece(std::span<const int32_t> ids, const std::vector<bool>& is_learnt, size_t first);
  void arrange();
  size_t begin_of(int64_t document) const;
  int64_t num_inputs(int64_t document) const;  // of one document
  int64_t row_length(int64_t example) const;
  void fill_row(int64_t example, int64_t row, TokenBatch& batch) const;

  std::string name_;
  int64_t sequence_length_;
  bool packs_;
  int64_t pad_;
  int64_t max_token_ = 0;
  int64_t num_rows_ = 0, num_cut_ = 0, num_left_out_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<bool> is_learnt_;
  std::vector<size_t> ends_;                     // where documents end among the tokens
  std::vector<std::vector<int64_t>> sequences_;  // the documents of each example
};

}  // namespace fullshard::data
