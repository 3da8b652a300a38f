#include "fullshard/shard/grad_norm_kernels.h"

#include <ATen/Parallel.h>

#include <vector>

#include "fullshard/base/vectorised.h"

namespace fullshard {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kBlock = 1 << 16;

// A fixed number of lanes whatever the instruction set, so that the bits are the same on all.
FULLSHARD_VECTORISED
double block_sum(const float* values, int64_t numel) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= numel; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (; i < numel; ++i) lanes[i % kLanes] += static_cast<double>(values[i]) * values[i];
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}

}  // namespace

double sum_of_squares(const float* values, int64_t numel) {
  const int64_t num_blocks = (numel + kBlock - 1) / kBlock;
  std::vector<double> sums(num_blocks);
  at::parallel_for(0, num_blocks, 4, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlock;
      sums[block] = block_sum(values + first, std::min(kBlock, numel - first));
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace fullshard
