// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/bert/bert_model.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "fullshard/nn/module_walk.h"
#include "tests/models/encoder_cases.h"
#include "tests/nn/expect_error.h"

namespace fullshard::testing {
namespace {

using nlohmann::json;

TensorFile bert_reference(const std::string& folder) {
  return read_tensor_file(fixture_path(folder + "/reference.safetensors"));
}

json bert_with(const std::string& key, const json& value) {
  auto config = fixture_json("bert/config.json");
  config[key] = value;
  return config;
}

std::string bert_refusal(const json& config) {
  return nn::error_of([&] { models::make_bert(config, "model/config.json"); });
}

TEST(Bert, GivesTheLogitsLossAndGradientsOfTransformers) {
  for (const std::string folder : {"bert", "bert_untied"}) {
    SCOPED_TRACE(folder);
    const auto model = load_fixture(models::make_bert, folder);
    expect_reference(*model, bert_reference(folder));
  }
}

TEST(Bert, BareEncoderGivesTheHiddenStatesAndGradientsOfTransformers) {
  const auto reference = bert_reference("bert_bare");
  const auto model = load_fixture(models::make_bert, "bert_bare");
  const auto outputs = model->forward(inputs_of(reference));
  EXPECT_FALSE(outputs.loss.defined());
  EXPECT_FALSE(outputs.logits.defined());
  expect_close("hidden", outputs.hidden, reference.at("hidden"));
  (outputs.hidden * reference.at("probe")).sum().backward();
  expect_gradients(*model, reference);
}

TEST(Bert, ConfigOfTransformers4MakesTheSameModel) {
  for (const std::string folder : {"bert", "bert_untied"}) {
    SCOPED_TRACE(folder);
    const auto inputs = inputs_of(bert_reference(folder));
    const auto expected = load_fixture(models::make_bert, folder)->forward(inputs);
    const auto found =
        load_fixture(models::make_bert, folder, "config_legacy.json")->forward(inputs);
    EXPECT_TRUE(found.logits.equal(expected.logits));
    EXPECT_TRUE(found.loss.equal(expected.loss));
  }
}

TEST(Bert, WritesTheConfigThatItRead) {
  for (const std::string folder : {"bert", "bert_untied", "bert_bare"}) {
    for (const std::string file : {"/config.json", "/config_legacy.json"}) {
      const auto config = fixture_json(folder + file);
      EXPECT_EQ(json::parse(models::make_bert(config, file)->config_json()), config)
          << folder << file;
    }
  }
}

TEST(Bert, ModelWithTwoHeadsBecomesTheMaskedOne) {
  const auto config = fixture_json("bert_pretraining/config.json");
  const auto model = models::make_bert(config, "config.json");
  EXPECT_EQ(model->architecture(), "BertForMaskedLM");
  auto expected = config;
  expected["architectures"] = json::array({"BertForMaskedLM"});
  EXPECT_EQ(json::parse(model->config_json()), expected);
}

TEST(Bert, FindsEveryParameterAmongTheNamesOfFilesNewAndOld) {
  const auto names = fixture_json("bert_pretraining/names.json");
  const auto model = models::make_bert(fixture_json("bert_pretraining/config.json"), "config.json");
  for (const char* generation : {"names", "old_names"}) {
    auto left = names[generation].get<std::vector<std::string>>();
    for (const auto& parameter : parameter_names(*model)) {
      const auto file = model->file_name(parameter);
      EXPECT_EQ(file.name, parameter);
      auto candidates = file.others;
      candidates.insert(candidates.begin(), file.name);
      const auto found = std::ranges::find_first_of(candidates, left);
      ASSERT_NE(found, candidates.end()) << parameter;
      std::erase(left, *found);
    }
    std::erase_if(left, [&](const auto& name) { return model->is_ignored_in_files(name); });
    EXPECT_EQ(left, std::vector<std::string>()) << generation;
  }
  EXPECT_FALSE(model->is_ignored_in_files("bert.encoder.layer.2.output.dense.weight"));
}

TEST(Bert, ModelsWithAndWithoutHeadReadEachOthersFiles) {
  const auto masked = models::make_bert(fixture_json("bert/config.json"), "config.json");
  const auto bare = models::make_bert(fixture_json("bert_bare/config.json"), "config.json");
  const std::string name = "encoder.layer.1.attention.output.LayerNorm.weight";
  const std::string old = "encoder.layer.1.attention.output.LayerNorm.gamma";
  EXPECT_EQ(masked->file_name("bert." + name).others,
            (std::vector<std::string>{"bert." + old, name, old}));
  EXPECT_EQ(bare->file_name(name).others,
            (std::vector<std::string>{old, "bert." + name, "bert." + old}));
  EXPECT_TRUE(masked->is_ignored_in_files("pooler.dense.bias"));
  EXPECT_FALSE(bare->is_ignored_in_files("pooler.dense.bias"));
  EXPECT_TRUE(bare->is_ignored_in_files("cls.predictions.bias"));
}

TEST(Bert, BlocksAreUnitsOfTheirName) {
  const auto model = models::make_bert(fixture_json("bert/config.json"), "config.json");
  std::vector<std::string> paths;
  nn::for_each_node(nn::walk_modules(*model), [&](const nn::ModuleNode& node) {
    if (node.class_name == model->block_class()) paths.push_back(node.path);
  });
  EXPECT_EQ(paths, (std::vector<std::string>{"bert.encoder.layer.0", "bert.encoder.layer.1"}));
  EXPECT_EQ(nn::walk_modules(*model).class_name, "BertForMaskedLM");
  EXPECT_TRUE(model->is_masked());
}

TEST(Bert, TokensUnderTheMaskChangeNothing) {
  const auto reference = bert_reference("bert");
  const auto model = load_fixture(models::make_bert, "bert");
  auto inputs = inputs_of(reference);
  const auto expected = model->forward(inputs);
  inputs.input_ids = inputs.input_ids.clone();
  inputs.input_ids[1].slice(0, 7) = 55;
  const auto found = model->forward(inputs);
  EXPECT_TRUE(found.loss.equal(expected.loss));
  EXPECT_TRUE(found.logits[1].slice(0, 0, 7).equal(expected.logits[1].slice(0, 0, 7)));
  EXPECT_FALSE(found.logits[1].slice(0, 7).equal(expected.logits[1].slice(0, 7)));
}

TEST(Bert, TokenTypesAreZeroUnlessGiven) {
  const auto model = load_fixture(models::make_bert, "bert");
  auto inputs = inputs_of(bert_reference("bert"));
  const auto given = model->forward(inputs).logits;
  inputs.token_type_ids.zero_();
  const auto zeros = model->forward(inputs).logits;
  inputs.token_type_ids.reset();
  EXPECT_TRUE(model->forward(inputs).logits.equal(zeros));
  EXPECT_FALSE(given.equal(zeros));
}

TEST(Bert, DropoutWorksInTrainingOnly) {
  auto config = fixture_json("bert/config.json");
  const auto plain = models::make_bert(config, "config.json");
  for (const std::string key : {"hidden_dropout_prob", "attention_probs_dropout_prob"}) {
    const auto dropping = models::make_bert(bert_with(key, 0.5), "config.json");
    for (const auto& name : parameter_names(*plain)) {
      parameter_of(*dropping, name).set_data(parameter_of(*plain, name));
    }
    const auto inputs = inputs_of(bert_reference("bert"));
    const auto expected = plain->forward(inputs).logits;
    dropping->train();
    EXPECT_FALSE(dropping->forward(inputs).logits.equal(expected)) << key;
    dropping->eval();
    EXPECT_TRUE(dropping->forward(inputs).logits.equal(expected)) << key;
  }
}

TEST(Bert, InitialValuesAreTheOriginals) {
  auto config = bert_with("initializer_range", 0.05);
  config["vocab_size"] = 400;
  config["pad_token_id"] = 7;
  const auto model = models::make_bert(config, "config.json");
  const auto words = initial_values(*model, "bert.embeddings.word_embeddings.weight");
  EXPECT_NEAR(words.mean().item<double>(), 0, 0.002);
  EXPECT_NEAR(words.std().item<double>(), 0.05, 0.001);
  EXPECT_EQ(words[7].abs().sum().item<double>(), 0);
  const auto query = initial_values(*model, "bert.encoder.layer.1.attention.self.query.weight");
  EXPECT_NEAR(query.std().item<double>(), 0.05, 0.003);
  for (const auto& name : parameter_names(*model)) {
    const auto values = initial_values(*model, name);
    EXPECT_TRUE(values.equal(initial_values(*model, name))) << name;
    const bool is_norm = name.ends_with("LayerNorm.weight");
    if (!is_norm && !name.ends_with("bias")) continue;
    EXPECT_TRUE(values.eq(is_norm ? 1 : 0).all().item<bool>()) << name;
  }
}

TEST(Bert, CountsProductsAndScores) {
  const auto config = fixture_json("bert/config.json");
  // Two blocks of width 32 and 56 inside, the head's 32 * 32 and 96 * 32; 12 per key and channel.
  const double products = 2 * (4 * 32 * 32 + 2 * 32 * 56) + 32 * 32 + 96 * 32;
  EXPECT_EQ(models::make_bert(config, "")->flops_per_token(10), 6 * products + 12.0 * 2 * 32 * 10);
}

TEST(Bert, RefusesWhatItIsNotInOneError) {
  auto config = bert_with("position_embedding_type", "relative_key");
  config["is_decoder"] = true;
  config["add_cross_attention"] = true;
  config["hidden_act"] = "mish";
  config["num_attention_heads"] = 5;
  config["embedding_size"] = 128;
  EXPECT_EQ(bert_refusal(config),
            "model/config.json: no BERT model can be made of it:\n"
            "  num_attention_heads is 5: expected a divisor of hidden_size, which is 32\n"
            "  hidden_act is \"mish\": gelu, gelu_new, gelu_pytorch_tanh, relu, silu and swish are "
            "supported\n"
            "  position_embedding_type is \"relative_key\": only \"absolute\" is supported\n"
            "  is_decoder is true: only false is supported\n"
            "  add_cross_attention is true: only false is supported\n"
            "  embedding_size is 128: unknown");
  EXPECT_EQ(bert_refusal(bert_with("architectures", json::array({"BertForTokenClassification"}))),
            "model/config.json: no BERT model can be made of it:\n"
            "  architectures is [\"BertForTokenClassification\"]: BertForMaskedLM, "
            "BertForPreTraining, BertForSequenceClassification and BertModel are supported");
  EXPECT_EQ(bert_refusal(bert_with("pad_token_id", 96)),
            "model/config.json: no BERT model can be made of it:\n"
            "  pad_token_id is 96: expected a token of the vocabulary, which has 96");
}

TEST(Bert, RefusesInputsThatDoNotFit) {
  const auto model = models::make_bert(fixture_json("bert/config.json"), "config.json");
  EXPECT_EQ(nn::error_of([&] {
              model->forward({at::zeros({1, 25}, at::kLong)});
            }),
            "input_ids: the sequence has 25 tokens, but the model has 24 positions; cut the "
            "sequences");
  ModelInputs inputs{at::zeros({1, 4}, at::kLong)};
  inputs.token_type_ids = at::full({1, 4}, 3, at::kLong);
  EXPECT_EQ(nn::error_of([&] { model->forward(inputs); }),
            "token_type_ids: expected a number from 0 to 2 for each of the input_ids "
            "(type_vocab_size is 3)");
  const auto bare = models::make_bert(fixture_json("bert_bare/config.json"), "config.json");
  inputs.labels = at::zeros({1, 4}, at::kLong);
  EXPECT_EQ(nn::error_of([&] { bare->forward(inputs); }),
            "BertModel: labels were given, but a bare encoder has no head to compare with them; "
            "use BertForMaskedLM");
}

}  // namespace
}  // namespace fullshard::testing
