// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/causal_data.h"

#include <algorithm>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::data {

CausalData::CausalData(TokenStream stream, int64_t sequence_length, int64_t max_samples)
    : stream_(std::move(stream)),
      sequence_length_(sequence_length),
      size_((stream_.size() - 1) / sequence_length) {
  if (size_ < 1) {
    fail_as(ErrorKind::input,
            "{}: {} tokens, expected at least {}: one sequence of {} and the token after it; give "
            "more data, or a shorter sequence length",
            stream_.name(), stream_.size(), sequence_length + 1, sequence_length);
  }
  if (max_samples > 0) size_ = std::min(size_, max_samples);
}

TokenBatch CausalData::batch(std::span<const int64_t> examples, uint64_t, int64_t) const {
  const auto length = static_cast<size_t>(sequence_length_);
  TokenBatch batch{.rows = std::ssize(examples), .columns = sequence_length_};
  batch.labels_are_next = true;
  batch.input_ids.reserve(examples.size() * length);
  batch.labels.reserve(examples.size() * length);
  std::vector<int64_t> tokens(length + 1);
  for (const int64_t example : examples) {
    check(example >= 0 && example < size_, "data: no example {}, there are {}", example, size_);
    stream_.read(example * sequence_length_, tokens);
    batch.input_ids.insert(batch.input_ids.end(), tokens.begin(), tokens.end() - 1);
    batch.labels.insert(batch.labels.end(), tokens.begin() + 1, tokens.end());
  }
  return batch;
}

std::string CausalData::describe() const {
  return fmt::format("{} sequences of {} from {} tokens ({})", size_, sequence_length_,
                     stream_.size(), stream_.name());
}

}  // namespace fullshard::data
