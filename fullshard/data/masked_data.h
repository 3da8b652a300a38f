// SPDX-License-Identifier: Apache-2.0
// Prediction of hidden tokens, as BERT learns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fullshard/data/dataset.h"
#include "fullshard/data/random.h"
#include "fullshard/data/tokens/token_stream.h"
#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard::data {

// Example k: [CLS], tokens [k(S-2) … (k+1)(S-2)), [SEP]. Each token that is not special has a label
// with `mask_probability`, at least one per example; of those, 80 % become [MASK], 10 % a random
// token that is not special and 10 % stay. What is random depends on (seed, epoch, example) only.
// `tokenizer` must outlive it.
class MaskedData final : public Dataset {
 public:
  struct Options {
    int64_t sequence_length = 512;
    int64_t max_samples = 0;
    double mask_probability = 0.15;
    int64_t vocabulary = 0;  // random tokens are below it; 0: the tokenizer's
  };
  MaskedData(TokenStream stream, const Tokenizer& tokenizer, const Options& options);

  int64_t size() const override { return size_; }
  TokenBatch batch(std::span<const int64_t> examples, uint64_t seed, int64_t epoch) const override;
  int64_t max_token() const override;
  std::string describe() const override;

 private:
  void hide(std::span<int64_t> ids, std::span<int64_t> labels, CounterRandom& random) const;
  int64_t replacement(int64_t token, CounterRandom& random) const;
  int64_t special(const char* name, std::optional<int32_t> token) const;

  TokenStream stream_;
  const Tokenizer& tokenizer_;
  int64_t sequence_length_;
  double mask_probability_;
  int64_t vocabulary_;
  int64_t cls_;
  int64_t sep_;
  int64_t mask_;
  int64_t size_;
};

}  // namespace fullshard::data
