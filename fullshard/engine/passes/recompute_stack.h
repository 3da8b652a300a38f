// SPDX-License-Identifier: Apache-2.0
// The recomputed calls that are open, innermost last.
#pragma once

#include <cstdint>
#include <vector>

#include "fullshard/nn/forward_hooks.h"

namespace fullshard::engine {

class RecomputeStack {
 public:
  void push(nn::RecomputePass pass, uint64_t id) {
    calls_.push_back({pass, id});
    num_replays_ += pass == nn::RecomputePass::replay;
  }
  void pop() {
    num_replays_ -= calls_.back().pass == nn::RecomputePass::replay;
    calls_.pop_back();
  }
  void clear() {
    calls_.clear();
    num_replays_ = 0;
  }

  bool is_empty() const { return calls_.empty(); }
  bool is_recording() const {
    return !calls_.empty() && calls_.back().pass == nn::RecomputePass::record;
  }
  // A call recorded inside a replay belongs to that replay too.
  bool is_replaying() const { return num_replays_ > 0; }
  uint64_t id() const { return calls_.back().id; }  // of the innermost

 private:
  struct Call {
    nn::RecomputePass pass;
    uint64_t id;
  };
  std::vector<Call> calls_;
  int num_replays_ = 0;  // of them
};

}  // namespace fullshard::engine
