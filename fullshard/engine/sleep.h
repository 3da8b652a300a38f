// SPDX-License-Identifier: Apache-2.0
// A model that gives the device to somebody else for a while: parameters, gradients and optimizer
// states go to host memory and come back, to the bit. docs/offload.md, "Sleep".
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "fullshard/memory/pool.h"

namespace fullshard {

// Of this rank. A CPU device is host memory: nothing moves, and all bytes are 0.
struct SleepReport {
  int64_t device_bytes = 0;  // given back by sleep(), taken again by wake()
  int64_t host_bytes = 0;    // taken by sleep(), given back by wake()
  double seconds = 0;
};

}  // namespace fullshard

namespace fullshard::engine {

class Engine;

// One state of an optimizer's, of one group: its memory, and the tensor that everybody has.
struct OwnedState {
  memory::Block memory;
  at::Tensor tensor;  // 1-D
};

// Owned by the facade. One thread.
class Sleep {
 public:
  SleepReport begin(Engine& engine, std::vector<OwnedState>& states);
  SleepReport end(Engine& engine, std::vector<OwnedState>& states);

 private:
  std::shared_ptr<memory::Pool> host_;  // null while awake, and on a CPU device
};

}  // namespace fullshard::engine
