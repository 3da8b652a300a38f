// SPDX-License-Identifier: Apache-2.0
// GPT-2 and the Llama family on the GPU.
#include <ATen/Context.h>
#include <ATen/ops/ones_like.h>
#include <gtest/gtest.h>

#include <string>

#include "fullshard/models/model_folder.h"
#include "tests/models/decoder_cases.h"
#include "tests/models/encoder_cases.h"

namespace fullshard::testing {
namespace {

class DeviceDecoders : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(at::globalContext().hasCUDA()) << "no GPU is visible; this program needs one";
  }
};

ModelInputs moved(ModelInputs inputs, at::Device device) {
  inputs.input_ids = inputs.input_ids.to(device);
  inputs.labels = inputs.labels.to(device);
  if (inputs.attention_mask.defined()) inputs.attention_mask = inputs.attention_mask.to(device);
  return inputs;
}

double loss_of(LanguageModel& model, const ModelInputs& inputs) {
  model.zero_grad();
  const auto loss = model.forward(inputs).loss;
  loss.backward();
  return loss.item<double>();
}

// The same weights on the GPU in `dtype`, one forward and backward on each.
void expect_same_step(const std::string& folder, const ModelInputs& inputs, at::ScalarType dtype,
                      double tolerance) {
  const auto wanted = load_decoder(folder), found = load_decoder(folder);
  found->to(at::Device(at::kCUDA), dtype);
  for (const auto& item : wanted->named_parameters()) {
    at::NoGradGuard no_grad;
    item.value().copy_(item.value().to(dtype));
  }
  const double expected = loss_of(*wanted, inputs);
  const double loss = loss_of(*found, moved(inputs, at::kCUDA));
  EXPECT_NEAR(loss, expected, tolerance * expected) << folder;
  const auto found_parameters = found->named_parameters();
  for (const auto& item : wanted->named_parameters()) {
    const auto exact = item.value().grad().to(at::kDouble);
    const auto& parameter = found_parameters[item.key()];
    ASSERT_TRUE(parameter.grad().defined()) << item.key();
    const auto own = parameter.grad().to(at::kCPU, at::kDouble);
    const double scale = exact.abs().max().item<double>();
    const double worst = (own - exact).abs().max().item<double>();
    EXPECT_LE(worst, tolerance * scale + 1e-7)
        << folder << " " << item.key() << ": values up to " << scale;
  }
}

TEST_P(DeviceDecoders, TakeTheStepOfTheCpu) {
  expect_same_step(GetParam(), some_inputs(2, 12), at::kFloat, 1e-4);
  expect_same_step(GetParam(), some_inputs(2, 12), at::kBFloat16, 0.15);
}

TEST_P(DeviceDecoders, TakeTheStepOfTheCpuUnderAMask) {
  auto inputs = some_inputs(2, 12);
  inputs.attention_mask = at::ones_like(inputs.input_ids);
  inputs.attention_mask.narrow(1, 0, 3).zero_();
  // What a hidden position computes means nothing, so nothing may be asked of it.
  inputs.labels = inputs.labels.clone();
  inputs.labels.narrow(1, 0, 4).fill_(-100);
  expect_same_step(GetParam(), inputs, at::kFloat, 1e-4);
  expect_same_step(GetParam(), inputs, at::kBFloat16, 0.15);
}

INSTANTIATE_TEST_SUITE_P(Folders, DeviceDecoders, ::testing::ValuesIn(decoder_folders()),
                         [](const auto& folder) { return folder.param; });

}  // namespace
}  // namespace fullshard::testing
