// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/t5/relative_position.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>

#include <cmath>

#include "fullshard/ops/embedding.h"

namespace fullshard::models {

at::Tensor relative_position_buckets(const at::Tensor& distances,
                                     const RelativePositions& positions) {
  const int64_t num_buckets =
      positions.is_bidirectional ? positions.num_buckets / 2 : positions.num_buckets;
  const int64_t num_single = num_buckets / 2;
  const auto away = positions.is_bidirectional ? distances.abs() : distances.clamp_max(0).neg();
  // In fp32 and in this order of operations, as the original: at the border of two buckets another
  // rounding would choose the other one.
  const double widening =
      std::log(static_cast<double>(positions.max_distance) / static_cast<double>(num_single));
  const auto steps = away.to(at::kFloat).div(num_single).log().div(widening);
  const auto far = steps.mul(num_buckets - num_single).to(at::kLong).add(num_single);
  const auto bucket = at::where(away.lt(num_single), away, far.clamp_max(num_buckets - 1));
  if (!positions.is_bidirectional) return bucket;
  return bucket + distances.gt(0).to(at::kLong).mul(num_buckets);
}

at::Tensor relative_position_bias(const at::Tensor& table, int64_t length,
                                  const RelativePositions& positions) {
  // A diagonal of the square is one distance: 2 * length - 1 rows of the table make all of it.
  const auto distances = at::arange(1 - length, length, table.options().dtype(at::kLong));
  const auto by_distance =
      fullshard::embedding(relative_position_buckets(distances, positions), table);
  // Window w of the distances starts at -(length - 1 - w): it is the last query's row for w = 0.
  return by_distance.t().unfold(1, length, 1).flip({1}).unsqueeze(0);
}

at::Tensor relative_position_bias(const at::Tensor& table, int64_t first, int64_t count,
                                  int64_t num_keys, const RelativePositions& positions) {
  const auto integers = table.options().dtype(at::kLong);
  const auto distances = at::arange(num_keys, integers).unsqueeze(0) -
                         at::arange(first, first + count, integers).unsqueeze(1);
  return fullshard::embedding(relative_position_buckets(distances, positions), table)
      .permute({2, 0, 1})
      .unsqueeze(0);
}

}  // namespace fullshard::models
