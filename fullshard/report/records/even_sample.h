// SPDX-License-Identifier: Apache-2.0
// Some of a sequence's numbers, evenly spread over it: all of them up to a limit, then every
// second, fourth, … one. Enough for a median, in memory that does not grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fullshard::report {

class EvenSample {
 public:
  explicit EvenSample(size_t limit = 8192) : limit_(limit) {}

  void add(double value);
  const std::vector<double>& values() const { return values_; }

 private:
  size_t limit_;
  int64_t count_ = 0;
  int64_t stride_ = 1;
  std::vector<double> values_;  // numbers 0, stride, 2·stride, …
};

}  // namespace fullshard::report
