// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/t5/t5_model.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "fullshard/models/t5/relative_position.h"
#include "fullshard/nn/module_walk.h"
#include "tests/models/encoder_cases.h"
#include "tests/nn/expect_error.h"

namespace fullshard::testing {
namespace {

using nlohmann::json;

const std::vector<std::string> kFolders = {"t5", "t5_v1_1", "t5_v1_1_tied"};

TensorFile t5_reference(const std::string& folder) {
  return read_tensor_file(fixture_path(folder + "/reference.safetensors"));
}

json t5_with(const std::string& key, const json& value) {
  auto config = fixture_json("t5/config.json");
  for (const char* derived : {"dense_act_fn", "is_gated_act"}) config.erase(derived);
  config[key] = value;
  return config;
}

std::string t5_refusal(const json& config) {
  return nn::error_of([&] { models::make_t5(config, "model/config.json"); });
}

TEST(T5, GivesTheLogitsLossAndGradientsOfTransformers) {
  for (const auto& folder : kFolders) {
    SCOPED_TRACE(folder);
    const auto model = load_fixture(models::make_t5, folder);
    expect_reference(*model, t5_reference(folder));
  }
}

TEST(T5, RecomputedBlocksGiveTheSameGradients) {
  for (const auto& folder : kFolders) {
    SCOPED_TRACE(folder);
    const auto model = load_fixture(models::make_t5, folder);
    nn::for_each_node(nn::walk_modules(*model), [](const nn::ModuleNode& node) {
      if (auto* block = dynamic_cast<nn::UnitState*>(node.module); node.class_name == "T5Block") {
        block->set_recompute(true);
      }
    });
    expect_reference(*model, t5_reference(folder));
  }
}

TEST(T5, MakesTheDecodersInputsOfTheLabels) {
  const auto reference = t5_reference("t5");
  const auto made = models::t5_decoder_inputs(reference.at("labels"), 0, 0);
  EXPECT_TRUE(made.equal(reference.at("decoder_input_ids")));
  const auto labels = at::tensor({5, 6, -100, 7, 8, -100}, at::kLong).view({2, 3});
  EXPECT_TRUE(models::t5_decoder_inputs(labels, 3, 1)
                  .equal(at::tensor({3, 5, 6, 3, 7, 8}, at::kLong).view({2, 3})));
  EXPECT_TRUE(models::t5_decoder_inputs(labels.flip(1), 3, 1)
                  .equal(at::tensor({3, 1, 6, 3, 1, 8}, at::kLong).view({2, 3})));
  EXPECT_EQ(labels[0][2].item<int64_t>(), -100);
}

TEST(T5, GivenDecoderInputsCountBeforeLabels) {
  const auto reference = t5_reference("t5");
  const auto model = load_fixture(models::make_t5, "t5");
  auto inputs = inputs_of(reference);
  const auto expected = model->forward(inputs);
  inputs.decoder_input_ids = reference.at("decoder_input_ids");
  EXPECT_TRUE(model->forward(inputs).loss.equal(expected.loss));
  inputs.labels.reset();
  EXPECT_TRUE(model->forward(inputs).logits.equal(expected.logits));
  inputs.decoder_input_ids = inputs.decoder_input_ids.clone().fill_(9);
  EXPECT_FALSE(model->forward(inputs).logits.equal(expected.logits));
}

TEST(T5, ConfigOfTransformers4MakesTheSameModel) {
  for (const auto& folder : kFolders) {
    SCOPED_TRACE(folder);
    const auto inputs = inputs_of(t5_reference(folder));
    const auto expected = load_fixture(models::make_t5, folder)->forward(inputs);
    const auto found = load_fixture(models::make_t5, folder, "config_legacy.json")->forward(inputs);
    EXPECT_TRUE(found.logits.equal(expected.logits));
    EXPECT_TRUE(found.loss.equal(expected.loss));
  }
}

TEST(T5, WritesTheConfigThatItRead) {
  for (const auto& folder : kFolders) {
    for (const std::string file : {"/config.json", "/config_legacy.json"}) {
      const auto config = fixture_json(folder + file);
      EXPECT_EQ(json::parse(models::make_t5(config, file)->config_json()), config)
          << folder << file;
    }
  }
}

TEST(T5, WithoutAFileKeysOfBothGenerationsDecideOnTheHead) {
  using Case = std::tuple<json, json, bool, bool>;  // tied, scales in the file; own head, scales
  for (const auto& [tied, scales, own_head, expected] :
       {Case{nullptr, nullptr, false, true}, Case{true, nullptr, false, true},
        Case{true, true, false, true}, Case{false, nullptr, true, false},
        Case{true, false, false, false}, Case{false, true, true, true}}) {
    auto config = t5_with("tie_word_embeddings", tied);
    config["scale_decoder_outputs"] = scales;
    const auto t5 = models::read_t5_config(config, "config.json");
    EXPECT_EQ(t5.own_head, own_head) << tied << scales;
    EXPECT_EQ(t5.scales_head, expected) << tied << scales;
  }
}

// Transformers writes the same config.json for both: tied, and not scaled.
TEST(T5, AFileTellsWhetherTheHeadIsTheEmbedding) {
  const auto config = fixture_json("t5_v1_1/config.json");
  ASSERT_EQ(fixture_json("t5_v1_1_tied/config.json"), config);
  const auto own_head = [&](const TensorFile& file) {
    const auto t5 = models::read_t5_config(config, "config.json", made_for(file));
    EXPECT_FALSE(t5.scales_head);
    return t5.own_head;
  };
  auto file = read_tensor_file(fixture_path("t5_v1_1/model.safetensors"));
  EXPECT_TRUE(own_head(file));
  EXPECT_FALSE(own_head(read_tensor_file(fixture_path("t5_v1_1_tied/model.safetensors"))));
  file["lm_head.weight"] = file.at("shared.weight").clone();  // as torch files of tied models
  EXPECT_FALSE(own_head(file));
  file["encoder.embed_tokens.weight"] = file.at("shared.weight");
  file.erase("shared.weight");
  EXPECT_FALSE(own_head(file));
  file["lm_head.weight"][79][23] += 1;
  EXPECT_TRUE(own_head(file));
}

TEST(T5, ATiedHeadIsTheEmbeddingsOwnTensor) {
  const auto model = load_fixture(models::make_t5, "t5_v1_1_tied");
  EXPECT_FALSE(model->named_parameters().contains("lm_head.weight"));
  const auto reference = t5_reference("t5_v1_1_tied");
  model->forward(inputs_of(reference)).loss.backward();
  expect_close("grad.shared.weight", parameter_of(*model, "shared.weight").grad(),
               reference.at("grad.shared.weight"));
}

TEST(T5, FilesNameTiedTensorsOnceOrOften) {
  const auto tied = models::make_t5(fixture_json("t5/config.json"), "config.json");
  const auto own = load_fixture(models::make_t5, "t5_v1_1");
  const std::vector<std::string> embeddings = {"encoder.embed_tokens.weight",
                                               "decoder.embed_tokens.weight"};
  EXPECT_EQ(tied->file_name("shared.weight").others, embeddings);
  for (const auto& name : embeddings) EXPECT_TRUE(tied->is_ignored_in_files(name));
  EXPECT_TRUE(tied->is_ignored_in_files("lm_head.weight"));
  EXPECT_FALSE(own->is_ignored_in_files("lm_head.weight"));
  EXPECT_TRUE(own->file_name("lm_head.weight").others.empty());
  EXPECT_TRUE(tied->is_ignored_in_files(
      "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"));
  EXPECT_FALSE(tied->is_ignored_in_files("decoder.block.3.layer.2.layer_norm.weight"));
}

TEST(T5, BucketsAreThoseOfTransformers) {
  const auto tables = fixture_json("t5_buckets.json");
  const auto first = tables["first_distance"].get<int64_t>();
  for (const bool is_bidirectional : {true, false}) {
    const auto expected =
        tables[is_bidirectional ? "encoder" : "decoder"].get<std::vector<int64_t>>();
    const auto count = static_cast<int64_t>(expected.size());
    const auto distances = at::arange(first, first + count, at::kLong);
    const auto found =
        models::relative_position_buckets(distances, {.is_bidirectional = is_bidirectional});
    EXPECT_EQ(std::vector<int64_t>(found.data_ptr<int64_t>(), found.data_ptr<int64_t>() + count),
              expected);
  }
}

TEST(T5, BiasStandsAtKeyMinusQuery) {
  // A bucket's number stands in its row, and the number plus 100 for the second head.
  const auto table = at::stack({at::arange(8.0), at::arange(8.0) + 100}, 1);
  const models::RelativePositions positions{
      .is_bidirectional = true, .num_buckets = 8, .max_distance = 20};
  const auto bias = models::relative_position_bias(table, 5, positions);
  ASSERT_EQ(bias.sizes(), at::IntArrayRef({1, 2, 5, 5}));
  for (int64_t query = 0; query < 5; ++query) {
    for (int64_t key = 0; key < 5; ++key) {
      const auto bucket =
          models::relative_position_buckets(at::tensor({key - query}, at::kLong), positions)
              .item<float>();
      EXPECT_EQ(bias[0][0][query][key].item<float>(), bucket);
      EXPECT_EQ(bias[0][1][query][key].item<float>(), bucket + 100);
    }
  }
}

TEST(T5, BlocksAreUnitsAndTheFirstOfAStackHoldsItsTable) {
  const auto model = models::make_t5(fixture_json("t5/config.json"), "config.json");
  std::vector<std::string> paths;
  nn::for_each_node(nn::walk_modules(*model), [&](const nn::ModuleNode& node) {
    if (node.class_name == model->block_class()) paths.push_back(node.path);
  });
  EXPECT_EQ(paths,
            (std::vector<std::string>{"encoder.block.0", "encoder.block.1", "decoder.block.0",
                                      "decoder.block.1", "decoder.block.2"}));
  std::vector<std::string> tables;
  for (const auto& name : parameter_names(*model)) {
    if (name.find("relative") != std::string::npos) tables.push_back(name);
  }
  EXPECT_EQ(tables, (std::vector<std::string>{
                        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                        "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"}));
  EXPECT_TRUE(model->is_encoder_decoder());
  EXPECT_EQ(model->max_positions(), 0);
}

TEST(T5, TokensUnderTheMaskChangeNothing) {
  const auto model = load_fixture(models::make_t5, "t5");
  auto inputs = inputs_of(t5_reference("t5"));
  const auto expected = model->forward(inputs);
  inputs.input_ids = inputs.input_ids.clone();
  inputs.input_ids[1].slice(0, 19) = 33;
  EXPECT_TRUE(model->forward(inputs).logits.equal(expected.logits));
  inputs.input_ids[1][18] = 33;
  EXPECT_FALSE(model->forward(inputs).logits.equal(expected.logits));
}

TEST(T5, DecoderSeesNoLaterToken) {
  const auto model = load_fixture(models::make_t5, "t5");
  auto inputs = inputs_of(t5_reference("t5"));
  const auto expected = model->forward(inputs).logits;
  inputs.decoder_input_ids = t5_reference("t5").at("decoder_input_ids").clone();
  inputs.decoder_input_ids.slice(1, 10) = 41;
  const auto found = model->forward(inputs).logits;
  EXPECT_TRUE(found.slice(1, 0, 10).equal(expected.slice(1, 0, 10)));
  EXPECT_FALSE(found.slice(1, 10).equal(expected.slice(1, 10)));
}

TEST(T5, DropoutWorksInTrainingOnly) {
  const auto plain = models::make_t5(fixture_json("t5/config.json"), "config.json");
  const auto dropping = models::make_t5(t5_with("dropout_rate", 0.5), "config.json");
  for (const auto& name : parameter_names(*plain)) {
    parameter_of(*dropping, name).set_data(parameter_of(*plain, name));
  }
  const auto inputs = inputs_of(t5_reference("t5"));
  const auto expected = plain->forward(inputs).logits;
  EXPECT_FALSE(dropping->forward(inputs).logits.equal(expected));
  dropping->eval();
  EXPECT_TRUE(dropping->forward(inputs).logits.equal(expected));
}

TEST(T5, HalfPrecisionStaysWithinItsRange) {
  const auto config = models::read_t5_config(fixture_json("t5/config.json"), "config.json");
  models::T5Block block(config, models::T5Part::encoder, /*is_first=*/true);
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : block->parameters()) parameter.fill_(1);
    // 24 channels of 1 make 24, 40 of them make 96000: beyond fp16.
    block->named_parameters()["layer.1.DenseReluDense.wo.weight"].fill_(100);
  }
  block->to(at::kHalf);
  const at::NoGradGuard no_grad;
  const auto hidden = at::full({1, 3, 24}, 60000, at::kHalf);
  const auto output = block(models::T5Sequence{hidden}, at::Tensor());
  EXPECT_EQ(output.hidden.max().item<float>(), 64512);  // 65504 - 1000 in fp16
}

TEST(T5, InitialValuesAreTheOriginals) {
  auto config = fixture_json("t5_v1_1/config_legacy.json");
  config["initializer_factor"] = 2;
  config["vocab_size"] = 400;
  config["d_ff"] = 300;
  const auto model = models::make_t5(config, "config.json");
  const auto expect_deviation = [&](const std::string& name, double deviation) {
    const auto values = initial_values(*model, name);
    EXPECT_NEAR(values.std().item<double>(), deviation, 0.06 * deviation) << name;
    EXPECT_NEAR(values.mean().item<double>(), 0, 0.15 * deviation) << name;
    EXPECT_TRUE(values.equal(initial_values(*model, name))) << name;
    EXPECT_FALSE(values.equal(initial_values(*model, name, 2))) << name;
  };
  expect_deviation("shared.weight", 2);
  expect_deviation("lm_head.weight", 2);
  const std::string block = "decoder.block.1.layer.";
  expect_deviation(block + "0.SelfAttention.q.weight", 2 / std::sqrt(24.0 * 12));
  expect_deviation(block + "0.SelfAttention.k.weight", 2 / std::sqrt(24.0));
  expect_deviation(block + "1.EncDecAttention.v.weight", 2 / std::sqrt(24.0));
  expect_deviation(block + "1.EncDecAttention.o.weight", 2 / std::sqrt(36.0));
  expect_deviation(block + "2.DenseReluDense.wi_0.weight", 2 / std::sqrt(24.0));
  expect_deviation(block + "2.DenseReluDense.wi_1.weight", 2 / std::sqrt(24.0));
  expect_deviation(block + "2.DenseReluDense.wo.weight", 2 / std::sqrt(300.0));
  EXPECT_TRUE(initial_values(*model, block + "2.layer_norm.weight").eq(2).all().item<bool>());
  EXPECT_TRUE(initial_values(*model, "encoder.final_layer_norm.weight").eq(2).all().item<bool>());
}

TEST(T5, CountsProductsAndScores) {
  const auto model = models::make_t5(fixture_json("t5/config.json"), "config.json");
  // Width 24, 36 inside the attention, 40 inside the feed-forward part; 2 and 3 blocks.
  const double products =
      2 * (4 * 24 * 36 + 2 * 24 * 40) + 3 * (8 * 24 * 36 + 2 * 24 * 40) + 80 * 24;
  const double scores = 36 * (2 * 10 + 3 * (5 + 10));
  EXPECT_EQ(model->flops_per_token(10), (6 * products + 12 * scores) / 2);
}

TEST(T5, ReadsTheFeedForwardPartFromItsName) {
  const auto read = [](const std::string& name) {
    const auto t5 = models::read_t5_config(t5_with("feed_forward_proj", name), "config.json");
    return std::pair(t5.is_gated, t5.activation);
  };
  EXPECT_EQ(read("relu"), std::pair(false, Activation::relu));
  EXPECT_EQ(read("gelu"), std::pair(false, Activation::gelu));
  EXPECT_EQ(read("gated-gelu"), std::pair(true, Activation::gelu_tanh));
  EXPECT_EQ(read("gated-silu"), std::pair(true, Activation::silu));
  EXPECT_EQ(read("gated-relu"), std::pair(true, Activation::relu));
}

TEST(T5, RefusesWhatItIsNotInOneError) {
  auto config = fixture_json("t5/config.json");
  config["feed_forward_proj"] = "gated-mish";
  config["is_encoder_decoder"] = false;
  config["relative_attention_max_distance"] = 4;
  config["num_experts"] = 8;
  config["decoder_start_token_id"] = 80;
  EXPECT_EQ(t5_refusal(config),
            "model/config.json: no T5 model can be made of it:\n"
            "  is_encoder_decoder is false: only true is supported\n"
            "  relative_attention_max_distance is 4: expected more than half of "
            "relative_attention_num_buckets, which is 8\n"
            "  feed_forward_proj is \"gated-mish\": expected relu, gelu, gelu_new or silu, or "
            "gated- and one of them\n"
            "  decoder_start_token_id is 80: expected a token of the vocabulary, which has 80\n"
            "  num_experts is 8: unknown");
  auto contradicted = fixture_json("t5/config.json");
  contradicted["feed_forward_proj"] = "gated-gelu";
  EXPECT_EQ(t5_refusal(contradicted),
            "model/config.json: no T5 model can be made of it:\n"
            "  dense_act_fn is \"relu\": expected gelu_new, as feed_forward_proj says\n"
            "  is_gated_act is false: expected true, as feed_forward_proj says");
}

TEST(T5, RefusesInputsThatDoNotFit) {
  const auto model = models::make_t5(fixture_json("t5/config.json"), "config.json");
  EXPECT_EQ(nn::error_of([&] {
              model->forward({at::zeros({1, 4}, at::kLong)});
            }),
            "T5: neither decoder_input_ids nor labels were given; give one");
  ModelInputs inputs{at::full({1, 4}, 80, at::kLong)};
  inputs.labels = at::zeros({1, 4}, at::kLong);
  EXPECT_EQ(nn::error_of([&] { model->forward(inputs); }),
            "input_ids: tokens from 80 to 80, but the model's vocabulary has 80; use its own "
            "tokenizer");
}

}  // namespace
}  // namespace fullshard::testing
