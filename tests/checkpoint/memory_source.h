// SPDX-License-Identifier: Apache-2.0
// A TensorSource in memory that records what is read from it.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/engine/plan/layout.h"
#include "fullshard/formats/tensor_source.h"
#include "tests/checkpoint/as_tensor.h"

namespace fullshard::testing {

// The intervals, sorted, follow each other from 0 to numel.
inline bool cover_once(std::vector<engine::Interval> intervals, int64_t numel) {
  std::sort(intervals.begin(), intervals.end(),
            [](const engine::Interval& a, const engine::Interval& b) { return a.begin < b.begin; });
  int64_t end = 0;
  for (const auto& interval : intervals) {
    if (interval.begin != end) return false;
    end = interval.end;
  }
  return end == numel;
}

class MemorySource : public TensorSource {
 public:
  explicit MemorySource(const std::map<std::string, at::Tensor>& values) : values_(values) {
    for (const auto& [name, tensor] : values_) {
      stored_.push_back({name, tensor.sizes().vec(), tensor.scalar_type(), "memory"});
    }
  }

  const std::vector<StoredTensor>& tensors() const override { return stored_; }

  void read(const std::string& name, int64_t begin, ElementSpan out) const override {
    if (name == broken) fail_as(ErrorKind::input, "memory: tensor '{}' cannot be read", name);
    const std::lock_guard lock(mutex_);
    ranges_[name].push_back({begin, begin + out.numel});
    as_tensor(out).copy_(values_.at(name).contiguous().view({-1}).narrow(0, begin, out.numel));
  }

  std::map<std::string, std::vector<engine::Interval>> ranges() const {
    const std::lock_guard lock(mutex_);
    return ranges_;
  }

  std::string broken;  // a tensor whose read fails

 private:
  std::map<std::string, at::Tensor> values_;
  std::vector<StoredTensor> stored_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::vector<engine::Interval>> ranges_;
};

}  // namespace fullshard::testing
