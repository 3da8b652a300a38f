// SPDX-License-Identifier: Apache-2.0
// What surrounds the forward of a unit. The engine implements it; nn/ only calls it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace fullshard::nn {

// A recomputed call runs its body twice: once to record (without gradients, in forward) and once to
// replay (with gradients, inside backward). Units nested in it are called in both passes.
enum class RecomputePass { record, replay };

class ForwardHooks {
 public:
  virtual ~ForwardHooks() = default;

  // Before and after every forward of the unit, also of a nested unit inside a replay. The outer
  // unit's own body is replayed without them: its parameters are there already.
  virtual void before_forward(const std::vector<at::Tensor>& inputs) = 0;
  virtual void after_forward(const std::vector<at::Tensor>& inputs,
                             const std::vector<at::Tensor>& outputs) = 0;
  // The forward threw; called once instead of after_forward.
  virtual void forward_failed() noexcept = 0;

  // Around both passes of a recomputed call, the replay with its inner backward; `id` is the same
  // in both and unique in the process.
  virtual void enter_recompute(RecomputePass pass, uint64_t id) = 0;
  virtual void leave_recompute() noexcept = 0;
};

}  // namespace fullshard::nn
