// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/bert/bert_classifier.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/errors.h"
#include "tests/models/encoder_cases.h"

namespace fullshard::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char* const kClassifierFolder = "bert_classes";

TensorFile classifier_reference() {
  return read_tensor_file(fixture_path("bert_classes/reference.safetensors"));
}

TEST(BertClassifier, GivesTheLogitsLossAndGradientsOfTransformers) {
  for (const std::string config : {"config.json", "config_legacy.json"}) {
    expect_reference(*load_fixture(models::make_bert, kClassifierFolder, config),
                     classifier_reference());
  }
}

TEST(BertClassifier, TakesLabelsInAColumn) {
  const auto model = load_fixture(models::make_bert, kClassifierFolder);
  auto inputs = inputs_of(classifier_reference());
  const auto loss = model->forward(inputs).loss;
  inputs.labels = inputs.labels.unsqueeze(1);
  EXPECT_TRUE(model->forward(inputs).loss.equal(loss));
  inputs.labels = at::tensor({0, 3}, at::kLong);
  EXPECT_EQ(
      message_of([&] { model->forward(inputs); }),
      "labels: labels from 0 to 3, but the model's list of classes has 3; -100 marks no label");
}

TEST(BertClassifier, KnowsItsClassesAndWritesThem) {
  for (const std::string file : {"bert_classes/config.json", "bert_classes/config_legacy.json"}) {
    const auto config = fixture_json(file);
    const auto model = models::make_bert(config, file);
    EXPECT_EQ(model->architecture(), "BertForSequenceClassification");
    EXPECT_THAT(model->class_names(), ElementsAre("no", "maybe", "yes"));
    EXPECT_EQ(json::parse(model->config_json()), config);
  }
  auto config = fixture_json("bert_classes/config.json");
  config.erase("id2label");
  config.erase("label2id");
  EXPECT_THAT(models::make_bert(config, "config.json")->class_names(),
              ElementsAre("LABEL_0", "LABEL_1"));
  config["num_labels"] = 3;
  EXPECT_THAT(models::make_bert(config, "config.json")->class_names(),
              ElementsAre("LABEL_0", "LABEL_1", "LABEL_2"));
}

TEST(BertClassifier, RefusesWhatIsNoClassification) {
  const auto said = [](const std::string& key, const json& value) {
    auto config = fixture_json("bert_classes/config.json");
    config[key] = value;
    return message_of([&] { models::make_bert(config, "config.json"); });
  };
  EXPECT_THAT(said("id2label", {{"0", "score"}}), HasSubstr("one class would be a regression"));
  EXPECT_THAT(said("id2label", {{"0", "a"}, {"7", "b"}}),
              HasSubstr("expected a name for each of 2 classes"));
  EXPECT_THAT(said("problem_type", "regression"), HasSubstr("problem_type"));
}

// A bare encoder's file has a pooler, a masked language model's has none: it is drawn with the
// head.
TEST(BertClassifier, ItsHeadIsWhatAFileLacks) {
  const auto config = fixture_json("bert_classes/config.json");
  const auto made = [&](const std::string& folder) {
    const auto file = read_tensor_file(fixture_path(folder + "/model.safetensors"));
    return models::make_bert(config, "config.json", made_for(file));
  };
  for (const std::string folder : {"bert_bare", "bert"}) {
    const auto model = made(folder);
    EXPECT_TRUE(model->is_head("classifier.weight"));
    EXPECT_TRUE(model->is_head("classifier.bias"));
    EXPECT_FALSE(model->is_head("bert.embeddings.word_embeddings.weight"));
    EXPECT_EQ(model->is_head("bert.pooler.dense.weight"), folder == "bert");
  }
  EXPECT_TRUE(made("bert")->is_ignored_in_files("cls.predictions.bias"));
  const auto names = made("bert_bare")->file_name("bert.pooler.dense.weight");
  EXPECT_EQ(names.name, "bert.pooler.dense.weight");
  EXPECT_THAT(names.others, ElementsAre("pooler.dense.weight"));
}

}  // namespace
}  // namespace fullshard::testing
