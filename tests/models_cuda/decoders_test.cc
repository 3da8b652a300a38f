// SPDX-License-Identifier: Apache-2.0
// GPT-2 and the Llama family on the GPU.
#include <ATen/Context.h>
#include <ATen/ops/ones_like.h>
#include <gtest/gtest.h>

#include <string>

#include "fullshard/models/model_folder.h"
#include "tests/models/decoder_cases.h"
#include "tests/models_cuda/same_step.h"

namespace fullshard::testing {
namespace {

class DeviceDecoders : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(at::globalContext().hasCUDA()) << "no GPU is visible; this program needs one";
  }
};

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
