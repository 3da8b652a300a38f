// SPDX-License-Identifier: Apache-2.0
// Decoders with adapters on the GPU, over bases of 16 and of 8 bits.
#include <ATen/Context.h>
#include <ATen/ops/randn_like.h>
#include <gtest/gtest.h>

#include <string>

#include "fullshard/models/lora/add_lora.h"
#include "tests/models/decoder_cases.h"
#include "tests/models_cuda/same_step.h"

namespace fullshard::testing {
namespace {

class DeviceAdapters : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(at::globalContext().hasCUDA()) << "no GPU is visible; this program needs one";
  }
};

void draw_same_adapters(LanguageModel& on_cpu, LanguageModel& on_gpu) {
  const at::NoGradGuard no_grad;
  const auto others = on_gpu.named_parameters();
  for (const auto& item : on_cpu.named_parameters()) {
    if (!is_lora_parameter(item.key())) continue;
    const auto& other = others[item.key()];
    const auto drawn = (at::randn_like(item.value()) * 0.2).to(other.scalar_type());
    item.value().copy_(drawn);
    other.copy_(drawn);
  }
}

Prepare adapters_in(bool in_8_bits) {
  return [in_8_bits](LanguageModel& on_cpu, LanguageModel& on_gpu) {
    for (LanguageModel* model : {&on_cpu, &on_gpu}) {
      add_lora(*model, {.rank = 4, .alpha = 6, .target_modules = {"all-linear"}});
      if (in_8_bits) {
        EXPECT_GT(quantise_base(*model), 0);
      }
    }
    draw_same_adapters(on_cpu, on_gpu);
  };
}

TEST_P(DeviceAdapters, TakeTheStepOfTheCpu) {
  for (const bool in_8_bits : {false, true}) {
    const auto prepare = adapters_in(in_8_bits);
    expect_same_step(GetParam(), some_inputs(2, 12), at::kFloat, 1e-4, prepare);
    expect_same_step(GetParam(), some_inputs(2, 12), at::kBFloat16, 0.15, prepare);
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, DeviceAdapters, ::testing::ValuesIn(decoder_folders()),
                         [](const auto& folder) { return folder.param; });

}  // namespace
}  // namespace fullshard::testing
