// SPDX-License-Identifier: Apache-2.0
// A pretrained encoder that learns to tell classes, as a user trains it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kEncoders = FULLSHARD_SOURCE_DIR "/tests/fixtures/models/";

class Classification : public ::testing::Test {
 protected:
  Classification() {
    std::filesystem::create_directories(folder_ / "words");
    folder_.write("words/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\n");
    std::string rows;
    for (int i = 0; i < 40; ++i) {
      const std::string letter(1, static_cast<char>('a' + i % 4));
      rows += R"({"text": ")" + letter + R"( e", "text_pair": "e", "label": ")" +
              (i % 4 < 2 ? "low" : "high") + "\"}\n";
    }
    folder_.write("rows.jsonl", rows);
  }
  launch::Ended run(const std::string& words) {
    return launch::shell("cd " + folder_.path() +
                         "; unset XDG_CONFIG_HOME FULLSHARD_CONFIG; export HOME=" + folder_.path() +
                         " OMP_NUM_THREADS=1; fullshard " + words);
  }
  launch::Ended train(const std::string& flags) {
    return run(
        "train --ranks 2 --task classification --data rows.jsonl --tokenizer words "
        "--sequence-length 16 --micro-batch 4 --lr 0.001 --overwrite --output out --model " +
        kEncoders + flags);
  }
  launch::TemporaryFolder folder_;
};

TEST_F(Classification, LearnsClassesOverAPretrainedEncoder) {
  const auto ended = train("bert --steps 100");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("has no weights for the head (bert.pooler.dense.weight"));
  const auto config = json::parse(folder_.read("out/model/config.json"));
  EXPECT_EQ(config["architectures"][0], "BertForSequenceClassification");
  EXPECT_EQ(config["id2label"], (json{{"0", "high"}, {"1", "low"}}));
  EXPECT_EQ(config["label2id"], (json{{"high", 0}, {"low", 1}}));
  for (const std::string ranks : {"1", "2"}) {
    const auto evaluated = run("eval --ranks " + ranks +
                               " --model out/model --data rows.jsonl --sequence-length 16 "
                               "--micro-batch 3 --json");
    ASSERT_EQ(evaluated.status, 0) << evaluated.output;
    const auto result = json::parse(evaluated.output.substr(evaluated.output.find('{')));
    EXPECT_EQ(result["accuracy"], 1.0);
    EXPECT_EQ(result["f1"], 1.0);
    EXPECT_EQ(result["examples"], 40);
    EXPECT_LT(result["loss"], 0.3);
  }
}

TEST_F(Classification, ABareEncodersPoolerIsKept) {
  const auto ended = train("bert_bare --steps 1");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("has no weights for the head (classifier."));
}

TEST_F(Classification, GoesOnWithTheClassesOfAClassifier) {
  const auto ended = train("bert_classes --steps 1");
  EXPECT_EQ(ended.status, 4) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("rows.jsonl:1: has the label 'low', but the model's classes "
                                      "are no, maybe, yes"));
  const auto anew = train("bert_classes --steps 1 --new-head");
  EXPECT_EQ(anew.status, 0) << anew.output;
}

TEST_F(Classification, IsForEncoders) {
  const auto ended = train("llama --steps 1");
  EXPECT_EQ(ended.status, 2) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("--task: is classification, which BERT is trained for"));
}

}  // namespace
}  // namespace fullshard::cli
