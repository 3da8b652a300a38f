// SPDX-License-Identifier: Apache-2.0
// A pretrained encoder without the head of its task, as a user trains it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kHeadModels = FULLSHARD_SOURCE_DIR "/tests/fixtures/models/";
constexpr const char* kNoHead = "bert_bare: has no weights for the head (";

class NewHeads : public ::testing::Test {
 protected:
  NewHeads() {
    std::filesystem::create_directories(folder_ / "words");
    folder_.write("words/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\n");
    std::string text;
    for (int i = 0; i < 200; ++i) text += "a b c d e ";
    folder_.write("text.txt", text);
  }
  launch::Ended run(const std::string& words) {
    return launch::shell("cd " + folder_.path() +
                         "; unset XDG_CONFIG_HOME FULLSHARD_CONFIG; export HOME=" + folder_.path() +
                         " OMP_NUM_THREADS=1; fullshard " + words);
  }
  launch::Ended train(const std::string& flags) {
    return run(
        "train --ranks 2 --data text.txt --tokenizer words --sequence-length 16 "
        "--micro-batch 2 --steps 2 --overwrite --output out --model " +
        kHeadModels + flags);
  }
  nlohmann::json record() { return nlohmann::json::parse(folder_.read("out/run.json")); }

  launch::TemporaryFolder folder_;
};

TEST_F(NewHeads, AreSaidBeforeTheFirstStep) {
  const launch::Ended ended = train("bert_bare");
  ASSERT_EQ(ended.status, 0) << ended.output;
  const size_t warned = ended.output.find(kNoHead), stepped = ended.output.find("step 2/2");
  ASSERT_NE(warned, std::string::npos) << ended.output;
  ASSERT_NE(stepped, std::string::npos) << ended.output;
  EXPECT_LT(warned, stepped);
  EXPECT_THAT(record()["warnings"].dump(), HasSubstr(kNoHead));
  EXPECT_EQ(record()["model"]["architecture"], "BertForMaskedLM");
  const auto config = nlohmann::json::parse(folder_.read("out/model/config.json"));
  EXPECT_EQ(config["architectures"][0], "BertForMaskedLM");
  const launch::Ended again =
      run("eval --ranks 1 --model out/model --data text.txt --sequence-length 16");
  EXPECT_EQ(again.status, 0) << again.output;
}

TEST_F(NewHeads, AreNotWarnedOfWhenTheyWereAskedFor) {
  const launch::Ended ended = train("bert_bare --new-head");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, Not(HasSubstr("has no weights for the head")));
  EXPECT_THAT(record()["warnings"].dump(), Not(HasSubstr("head")));
}

TEST_F(NewHeads, AreRefusedWhereThereIsNone) {
  const launch::Ended ended = run("train --ranks 1 --data text.txt --model " + kHeadModels +
                                  "gpt2 --new-head --sequence-length 16");
  EXPECT_EQ(ended.status, 2) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("--new-head: the head of GPT2LMHeadModel is its embedding"));
}

}  // namespace
}  // namespace fullshard::cli
