// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/gradients/grad_norm_kernels.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "fullshard/base/vectorised.h"

namespace fullshard::engine {
namespace {

constexpr int64_t kLanes = SquareSum::kLanes;
constexpr int64_t kBlock = 1 << 16;

// A fixed number of lanes whatever the instruction set, so that the bits are the same on all.
// `numel` is a multiple of kLanes.
FULLSHARD_VECTORISED
void add_squares(double* sums, const float* values, int64_t numel) {
  double lanes[kLanes];
  for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = sums[lane];
  for (int64_t i = 0; i < numel; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] = lanes[lane];
}

// One pass over several blocks side by side: a core that reads eight streams has as many lines
// under way as it can have, with one stream half of them (bench/results/cpu_adamw.md). The sums are
// those of add_squares.
constexpr int64_t kElementsAhead = 512;

template <int kStreams>
FULLSHARD_VECTORISED void add_squares_of_streams(std::array<double, kLanes>* sums,
                                                 const float* values) {
  double lanes[kStreams][kLanes] = {};
  for (int64_t i = 0; i < kBlock; i += kLanes) {
#pragma GCC unroll 8
    for (int64_t stream = 0; stream < kStreams; ++stream) {
      __builtin_prefetch(values + stream * kBlock + i + kElementsAhead);
    }
    // The lanes outside: g++ 12 makes vectors of them only like this.
    for (int64_t lane = 0; lane < kLanes; ++lane) {
#pragma GCC unroll 8
      for (int64_t stream = 0; stream < kStreams; ++stream) {
        const double value = values[stream * kBlock + i + lane];
        lanes[stream][lane] += value * value;
      }
    }
  }
  for (int64_t stream = 0; stream < kStreams; ++stream) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[stream][lane] = lanes[stream][lane];
  }
}

double sum_of(const std::array<double, kLanes>& lanes) {
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}

// Writes the sums of as many whole blocks as make full turns of kStreams; returns their number.
template <int kStreams>
int64_t sum_whole_blocks(double* sums, const float* values, int64_t num_blocks) {
  int64_t block = 0;
  for (; block + kStreams <= num_blocks; block += kStreams) {
    std::array<double, kLanes> lanes[kStreams];
    add_squares_of_streams<kStreams>(lanes, values + block * kBlock);
    for (int64_t i = 0; i < kStreams; ++i) sums[block + i] = sum_of(lanes[i]);
  }
  return block;
}

}  // namespace

void SquareSum::add(const float* values, int64_t numel) {
  while (numel > 0) {
    const int64_t lane = filled_ % kLanes;
    int64_t taken = std::min(numel, kBlock - filled_);
    if (lane == 0 && taken >= kLanes) {
      taken -= taken % kLanes;
      add_squares(lanes_.data(), values, taken);
    } else {
      taken = std::min(taken, kLanes - lane);
      for (int64_t i = 0; i < taken; ++i) {
        lanes_[lane + i] += static_cast<double>(values[i]) * values[i];
      }
    }
    values += taken;
    numel -= taken;
    filled_ += taken;
    if (filled_ == kBlock) close_block();
  }
}

void SquareSum::close_block() {
  closed_ += sum_of(lanes_);
  lanes_ = {};
  filled_ = 0;
}

double SquareSum::total() const { return filled_ == 0 ? closed_ : closed_ + sum_of(lanes_); }

double sum_of_squares(const float* values, int64_t numel) {
  const int64_t num_blocks = (numel + kBlock - 1) / kBlock;
  std::vector<double> sums(num_blocks);
  at::parallel_for(0, num_blocks, 8, [&](int64_t begin, int64_t end) {
    const int64_t whole = std::min(end, numel / kBlock);
    int64_t block = begin;
    block += sum_whole_blocks<8>(sums.data() + block, values + block * kBlock, whole - block);
    block += sum_whole_blocks<4>(sums.data() + block, values + block * kBlock, whole - block);
    for (; block < end; ++block) {
      const int64_t first = block * kBlock;
      SquareSum sum;
      sum.add(values + first, std::min(kBlock, numel - first));
      sums[block] = sum.total();
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace fullshard::engine
