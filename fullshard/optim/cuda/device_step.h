// SPDX-License-Identifier: Apache-2.0
// A step over pieces in the memory of a GPU: a few launches on the current stream, nothing waits.
// A build without CUDA refuses by a message.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "fullshard/optim/cuda/device_table.h"
#include "fullshard/optim/kernels/adagrad_rule.h"
#include "fullshard/optim/kernels/adamw_rule.h"
#include "fullshard/optim/kernels/lamb_rule.h"
#include "fullshard/optim/kernels/lion_rule.h"
#include "fullshard/optim/kernels/sgd_rule.h"

namespace fullshard::optim {

// What parameters with the same rules have in common in one step.
struct PieceSetting {
  double lr = 0;
  double weight_decay = 0;
};

// What an optimizer is given to make its constants of.
struct DevicePass {
  const DeviceTable& table;
  std::vector<PieceSetting> settings = {};  // by DevicePiece::setting
  double factor = 1;                        // the gradient is to be multiplied with it
  at::Tensor factor_on_device = {};         // fp64; when defined it counts instead of `factor`
  uint64_t rounding = 0;                    // RoundingKey::of_step
};

// `steps` are constants for each of the pass's settings.
void step_on_device(const DevicePass& pass, const std::vector<AdamWStep>& steps);
void step_on_device(const DevicePass& pass, const std::vector<SgdStep>& steps);
void step_on_device(const DevicePass& pass, const std::vector<AdagradStep>& steps);
void step_on_device(const DevicePass& pass, const std::vector<LionStep>& steps);

// LAMB. First pass: states are updated; sums of squares of parameters and directions, fp64
// [num_tensors, 2], zero for tensors without a piece.
at::Tensor moments_on_device(const DevicePass& pass, const std::vector<LambStep>& steps,
                             int64_t num_tensors);
// From those of all shards, [shards, tensors, 2]: fp32 [tensors].
at::Tensor trust_ratios_on_device(const at::Tensor& squares, float least, float most);
// Second pass.
void step_on_device(const DevicePass& pass, const std::vector<LambStep>& steps,
                    const at::Tensor& ratios);

}  // namespace fullshard::optim
