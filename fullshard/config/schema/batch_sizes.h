// SPDX-License-Identifier: Apache-2.0
// Micro-batch, accumulation and global batch: global = micro * accumulation * ranks, the missing
// ones derived by DeepSpeed's rules.
#pragma once

#include <cstdint>
#include <optional>

namespace fullshard {

// Products of two of them and a number of ranks stay below 2^63.
inline constexpr int64_t kLargestMicroBatch =
    (int64_t{1} << 21) - 1;  // and accumulation, and ranks
inline constexpr int64_t kLargestBatch = 1'000'000'000'000;

// Named after DeepSpeed's keys. train_batch_size or train_micro_batch_size_per_gpu must be given.
struct BatchSizeOptions {
  std::optional<int64_t> train_batch_size = {};
  std::optional<int64_t> train_micro_batch_size_per_gpu = {};
  std::optional<int64_t> gradient_accumulation_steps = {};
};

struct BatchSizes {
  int64_t global_batch;  // samples per optimizer step, over all ranks
  int64_t micro_batch;   // samples of one rank in one forward
  int64_t accumulation;  // micro-batches of one rank per optimizer step
};

// With the batch or the micro-batch alone, accumulation is 1. Sizes that do not multiply up to the
// batch are an error of kind usage that says which would fit. `num_ranks` are the data-parallel
// ranks.
BatchSizes derive_batch_sizes(const BatchSizeOptions& options, int64_t num_ranks);

}  // namespace fullshard
