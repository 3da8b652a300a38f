// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/measured_steps.h"

#include <ATen/core/Tensor.h>

#include <chrono>

#include "fullshard/memory/device_memory.h"

namespace fullshard::worker {

at::Tensor MeasuredSteps::next(const std::vector<int64_t>& tokens) {
  const auto start = std::chrono::steady_clock::now();
  auto scores = model_.next(tokens);
  memory::synchronise(scores.device());
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  seconds_ += time.count();
  ++num_steps_;
  return scores;
}

}  // namespace fullshard::worker
