// SPDX-License-Identifier: Apache-2.0
// Memory of a device that a lane still copies from. It is given back in the caller's order, behind
// the copy, and never more than a few bytes wait: the device comes to the copies long after the
// host has asked for them, and what is given back only when the allocator happens to look would
// pile up meanwhile.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "fullshard/memory/lane.h"

namespace fullshard::memory {

// One thread at a time.
class Leaving {
 public:
  explicit Leaving(int64_t most_bytes) : most_bytes_(most_bytes) {}

  // Until `copied`. Where more would wait than may, the caller's stream first waits for the oldest.
  void hold(LaneMark copied, std::vector<at::Tensor> memory);
  void release_all();

  int64_t bytes() const { return bytes_; }

 private:
  struct Held {
    LaneMark copied;
    std::vector<at::Tensor> memory;
    int64_t bytes = 0;
  };
  void release_oldest();

  int64_t most_bytes_;
  int64_t bytes_ = 0;
  std::deque<Held> held_;
};

}  // namespace fullshard::memory
