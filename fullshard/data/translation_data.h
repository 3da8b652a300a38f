// SPDX-License-Identifier: Apache-2.0
// Pairs of texts for encoder-decoder models.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fullshard/data/dataset.h"
#include "fullshard/data/text/records.h"
#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard::data {

struct TranslationOptions {
  std::vector<std::string> files = {};  // tables or JSON
  PairLanguages languages = {};
  std::string source_prefix = {};
  int64_t source_length = 512;  // longer ones are cut, their end mark is kept
  int64_t target_length = 512;
  int64_t max_samples = 0;
  int64_t vocabulary = 0;
  int num_threads = 0;
  int64_t block_bytes = kBlockBytes;
};

// Example k: pair k. A batch is padded to its longest source and its longest target, rounded up to
// a multiple of 8 as far as the lengths allow; padding is 0 in attention_mask and -100 in labels.
// Tokens are kept in memory.
class TranslationData final : public Dataset {
 public:
  TranslationData(const TranslationOptions& options, const Tokenizer& tokenizer);

  int64_t size() const override { return std::ssize(ends_) / 2; }
  TokenBatch batch(std::span<const int64_t> examples, uint64_t seed, int64_t epoch) const override;
  int64_t max_token() const override { return max_token_; }
  std::string describe() const override;

 private:
  // Text 2k is the source of pair k, text 2k + 1 its target.
  std::span<const int32_t> text(int64_t number) const;
  int64_t padded_length(std::span<const int64_t> examples, int64_t side, int64_t limit) const;

  std::string name_;
  int64_t source_length_;
  int64_t target_length_;
  int64_t pad_;
  int64_t max_token_ = -1;
  std::vector<int32_t> tokens_;
  std::vector<size_t> ends_;
};

}  // namespace fullshard::data
