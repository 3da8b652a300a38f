// SPDX-License-Identifier: Apache-2.0
// A box of a row-major tensor as runs of elements that are contiguous in both.
#pragma once

#include <cstdint>
#include <vector>

namespace fullshard::formats {

// Run k holds elements [k * length, (k + 1) * length) of the box. Later runs begin later.
class BoxRuns {
 public:
  BoxRuns(const std::vector<int64_t>& shape, const std::vector<int64_t>& offsets,
          const std::vector<int64_t>& sizes);

  int64_t length() const { return length_; }
  int64_t count() const { return count_; }
  int64_t begin_of(int64_t run) const;         // in the tensor
  int64_t first_after(int64_t element) const;  // the first run that ends after it

 private:
  std::vector<int64_t> sizes_;    // the dimensions that runs are counted over
  std::vector<int64_t> strides_;  // in the tensor
  int64_t start_ = 0;
  int64_t length_ = 1;
  int64_t count_ = 1;
};

}  // namespace fullshard::formats
