// SPDX-License-Identifier: Apache-2.0
// One step of a fixture's model on the GPU beside the same on the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "fullshard/models/common/unpadded.h"
#include "tests/models/decoder_cases.h"

namespace fullshard::testing {

inline ModelInputs moved(ModelInputs inputs, at::Device device) {
  inputs.input_ids = inputs.input_ids.to(device);
  inputs.labels = inputs.labels.to(device);
  for (at::Tensor* optional : {&inputs.attention_mask, &inputs.token_type_ids}) {
    if (optional->defined()) *optional = optional->to(device);
  }
  if (const auto layout = inputs.unpadded) {
    inputs.unpadded =
        models::make_unpadded(layout->documents->lengths, layout->num_columns, device, 4);
    EXPECT_NE(inputs.unpadded, nullptr) << "too little padding for a test";
  }
  return inputs;
}

inline double loss_of(LanguageModel& model, const ModelInputs& inputs) {
  model.zero_grad();
  const auto loss = model.forward(inputs).loss;
  loss.backward();
  return loss.item<double>();
}

// The same weights on the GPU in `dtype`, one forward and backward on each. `prepare`: done to both
// before the step.
using Prepare = std::function<void(LanguageModel& on_cpu, LanguageModel& on_gpu)>;
inline void expect_same_step(const std::string& folder, const ModelInputs& inputs,
                             at::ScalarType dtype, double tolerance, const Prepare& prepare = {}) {
  const auto wanted = load_decoder(folder), found = load_decoder(folder);
  found->to(at::Device(at::kCUDA), dtype);
  for (const auto& item : wanted->named_parameters()) {
    at::NoGradGuard no_grad;
    item.value().copy_(item.value().to(dtype));
  }
  if (prepare) prepare(*wanted, *found);
  const double expected = loss_of(*wanted, inputs);
  const double loss = loss_of(*found, moved(inputs, at::kCUDA));
  EXPECT_NEAR(loss, expected, tolerance * expected) << folder;
  const auto found_parameters = found->named_parameters();
  // Some gradients are zero but for rounding, as that of a key's bias, to which softmax is blind.
  double largest = 0;
  for (const auto& item : wanted->named_parameters()) {
    if (!item.value().requires_grad()) continue;
    largest = std::max(largest, item.value().grad().abs().max().item<double>());
  }
  for (const auto& item : wanted->named_parameters()) {
    if (!item.value().requires_grad()) continue;
    const auto exact = item.value().grad().to(at::kDouble);
    const auto& parameter = found_parameters[item.key()];
    ASSERT_TRUE(parameter.grad().defined()) << item.key();
    const auto own = parameter.grad().to(at::kCPU, at::kDouble);
    const double scale = std::max(exact.abs().max().item<double>(), 1e-3 * largest);
    const double worst = (own - exact).abs().max().item<double>();
    EXPECT_LE(worst, tolerance * scale + 1e-7)
        << folder << " " << item.key() << ": values up to " << scale;
  }
}

}  // namespace fullshard::testing
