// SPDX-License-Identifier: Apache-2.0
// A part of a run in which a model is only evaluated.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <optional>
#include <utility>
#include <vector>

#include "fullshard/nn/replay_state.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace fullshard {

// While it lives, the module is in evaluation mode, this thread records no gradients, and with a
// 16-bit dtype matrix products on CPU and CUDA compute in it (autocast). At its end, also through
// an exception, every module has its own mode back and the thread its settings. The module outlives
// it; ranks each open their own.
class EvaluationScope {
 public:
  explicit EvaluationScope(torch::nn::Module& module,
                           std::optional<at::ScalarType> dtype = std::nullopt);
  ~EvaluationScope();
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  std::vector<std::pair<torch::nn::Module*, bool>> was_training_;  // parents first
  nn::AutocastState autocast_;
  at::NoGradGuard no_grad_;
};

}  // namespace fullshard
