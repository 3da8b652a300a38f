// SPDX-License-Identifier: Apache-2.0
// T5's positions: a number for each head and bucket of distances, added to the attention's scores.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fullshard::models {

struct RelativePositions {
  bool is_bidirectional = true;  // else keys after the query are one bucket with the query itself
  int64_t num_buckets = 32;
  int64_t max_distance = 128;  // beyond it all distances are one bucket
};

// The bucket of each distance (key's position minus query's), int64. Half of the buckets are single
// distances, the others widen logarithmically.
at::Tensor relative_position_buckets(const at::Tensor& distances,
                                     const RelativePositions& positions);

// [1, heads, length, length] from the table [buckets, heads]; gradients reach the table.
at::Tensor relative_position_bias(const at::Tensor& table, int64_t length,
                                  const RelativePositions& positions);

// [1, heads, count, keys] of the queries `first` to first + count - 1, which see keys 0 to keys
// - 1.
at::Tensor relative_position_bias(const at::Tensor& table, int64_t first, int64_t count,
                                  int64_t num_keys, const RelativePositions& positions);

}  // namespace fullshard::models
