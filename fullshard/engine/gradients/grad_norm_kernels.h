// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace fullshard::engine {

// Σ x² in fp64 over interleaved partial sums of blocks, added in a fixed order: the same bits
// however the values are cut, whatever the instruction set and the number of threads.
double sum_of_squares(const float* values, int64_t numel);

// The same sum of values that arrive one range after the other.
class SquareSum {
 public:
  static constexpr int64_t kLanes = 16;

  void add(const float* values, int64_t numel);
  double total() const;

 private:
  void close_block();

  std::array<double, kLanes> lanes_{};
  int64_t filled_ = 0;  // of the present block
  double closed_ = 0;   // blocks before it
};

}  // namespace fullshard::engine
