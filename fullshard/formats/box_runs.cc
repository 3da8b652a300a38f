// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/box_runs.h"

#include <cstddef>

namespace fullshard::formats {

BoxRuns::BoxRuns(const std::vector<int64_t>& shape, const std::vector<int64_t>& offsets,
                 const std::vector<int64_t>& sizes) {
  int64_t stride = 1;
  bool is_run = true;  // all dimensions so far are whole: they lie in one run
  for (size_t d = shape.size(); d > 0; --d) {
    const size_t i = d - 1;
    start_ += offsets[i] * stride;
    if (is_run) {
      length_ *= sizes[i];
    } else {
      sizes_.insert(sizes_.begin(), sizes[i]);
      strides_.insert(strides_.begin(), stride);
      count_ *= sizes[i];
    }
    is_run = is_run && sizes[i] == shape[i];
    stride *= shape[i];
  }
}

int64_t BoxRuns::begin_of(int64_t run) const {
  int64_t begin = start_;
  for (size_t d = sizes_.size(); d > 0; --d) {
    begin += run % sizes_[d - 1] * strides_[d - 1];
    run /= sizes_[d - 1];
  }
  return begin;
}

int64_t BoxRuns::first_after(int64_t element) const {
  int64_t low = 0;
  int64_t high = count_;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (begin_of(middle) + length_ > element) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace fullshard::formats
