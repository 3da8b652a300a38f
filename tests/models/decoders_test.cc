// SPDX-License-Identifier: Apache-2.0
// GPT-2 and the Llama family against transformers.
#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "fullshard/models/model_folder.h"
#include "tests/files.h"
#include "tests/models/decoder_cases.h"
#include "tests/models/encoder_cases.h"

namespace fullshard::testing {
namespace {

class Decoders : public ::testing::TestWithParam<std::string> {};

TEST_P(Decoders, ComputeWhatTransformersComputes) {
  const auto reference = read_tensor_file(fixture_path(GetParam() + "/reference.safetensors"));
  expect_reference(*load_decoder(GetParam()), reference);
}

TEST_P(Decoders, OldKeysGiveTheSameModel) {
  const auto reference = read_tensor_file(fixture_path(GetParam() + "/reference.safetensors"));
  expect_reference(*load_decoder(GetParam(), "config_legacy.json"), reference);
}

TEST_P(Decoders, ConfigurationsComeBackByteForByte) {
  for (const std::string file : {"/config.json", "/config_legacy.json"}) {
    const auto text = read_file(fixture_path(GetParam() + file));
    EXPECT_EQ(make_model(text, "config.json")->config_json(), text);
  }
}

TEST_P(Decoders, HoldNothingButParameters) {
  const auto model = load_decoder(GetParam());
  model->forward(some_inputs());
  EXPECT_TRUE(model->buffers().empty());
}

INSTANTIATE_TEST_SUITE_P(Folders, Decoders, ::testing::ValuesIn(decoder_folders()),
                         [](const auto& folder) { return folder.param; });

// Right after an evaluation in inference mode, and after sequences of another length.
TEST(Decoder, TrainAfterAnEvaluation) {
  const auto reference = read_tensor_file(fixture_path("llama/reference.safetensors"));
  const auto model = load_decoder("llama");
  {
    const c10::InferenceMode inference;
    model->forward(some_inputs(1, 16));
    model->forward(some_inputs(1, 30));
    model->forward(some_inputs(1, 16));
  }
  expect_reference(*model, reference);
}

// A key that is hidden changes nothing, whatever its token.
TEST(Decoder, PaddingIsNotSeen) {
  for (const auto& config : {tiny_gpt2(), tiny_llama()}) {
    const auto model = make_tiny(config);
    auto inputs = some_inputs();
    inputs.labels.reset();
    inputs.attention_mask = at::ones_like(inputs.input_ids);
    inputs.attention_mask.narrow(1, 0, 3).zero_();
    const auto logits = model->forward(inputs).logits.narrow(1, 3, 9);
    inputs.input_ids = inputs.input_ids.clone();
    inputs.input_ids.narrow(1, 0, 3).fill_(1);
    EXPECT_TRUE(at::equal(model->forward(inputs).logits.narrow(1, 3, 9), logits));
    EXPECT_TRUE(logits.isfinite().all().item<bool>());
  }
}

}  // namespace
}  // namespace fullshard::testing
