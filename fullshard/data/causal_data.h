// SPDX-License-Identifier: Apache-2.0
// Next-token prediction over a stream of tokens.
#pragma once

#include <cstdint>
#include <string>

#include "fullshard/data/dataset.h"
#include "fullshard/data/tokens/token_stream.h"

namespace fullshard::data {

// Example k: inputs t[kS … kS+S), labels t[kS+1 … kS+S]. There are floor((tokens - 1) / S)
// examples; the rest at the end is not used. An Error of the kind `input` when there is not even
// one.
class CausalData final : public Dataset {
 public:
  CausalData(TokenStream stream, int64_t sequence_length, int64_t max_samples);

  int64_t size() const override { return size_; }
  TokenBatch batch(std::span<const int64_t> examples, uint64_t seed, int64_t epoch) const override;
  bool labels_every_token() const override { return true; }
  int64_t max_token() const override { return stream_.max_token(); }
  std::string describe() const override;

 private:
  TokenStream stream_;
  int64_t sequence_length_;
  int64_t size_;
};

}  // namespace fullshard::data
