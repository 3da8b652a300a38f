// SPDX-License-Identifier: Apache-2.0
// Buffers that forwards change, such as BatchNorm's running statistics, stay the same on all ranks:
// at every step the ranks take rank 0's. What ignored modules hold is left alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "fullshard/comm/communicator.h"
#include "fullshard/engine/plan/wrap.h"

namespace fullshard::engine {

class BufferBroadcast {
 public:
  // All ranks' buffers are the same now.
  BufferBroadcast(const Communicator& everyone, const WrapPlan& plan);

  // Collective; does nothing for a model without buffers. Rank 0's go out in one message. Those of
  // a module that has more than 64 KiB of them, such as tables and masks, go only where torch's
  // version counters tell that any rank has changed one.
  void synchronise();

 private:
  struct Module {
    std::vector<at::Tensor> buffers;
    std::vector<int64_t> versions;  // after the last synchronisation
    int64_t bytes() const;
    bool is_changed() const;
    void note_versions();
  };

  // Of the large modules, those that any rank has changed. Collective when there are any.
  std::vector<bool> changed_anywhere() const;
  std::vector<at::Tensor> buffers_to_send() const;

  Communicator everyone_;
  std::vector<at::Tensor> small_;
  std::vector<Module> large_;
};

}  // namespace fullshard::engine
