// SPDX-License-Identifier: Apache-2.0
// Supervised fine-tuning as a user does it: conversations, packing, mixtures, a held-out share and
// an early end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class FineTuning : public ::testing::Test {
 protected:
  FineTuning() {
    std::filesystem::create_directories(folder_ / "base");
    const json config = {{"architectures", {"LlamaForCausalLM"}},
                         {"model_type", "llama"},
                         {"vocab_size", 264},
                         {"max_position_embeddings", 64},
                         {"hidden_size", 32},
                         {"intermediate_size", 48},
                         {"num_hidden_layers", 2},
                         {"num_attention_heads", 2}};
    folder_.write("base/config.json", config.dump());
    folder_.write("base/tokenizer_config.json",
                  R"({"tokenizer_class": "FullshardByteTokenizer", "eos_token": "</s>"})");
    folder_.write("base/chat_template.jinja",
                  "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}{{ eos_token }}"
                  "{% endfor %}{% if add_generation_prompt %}<a>{% endif %}");
    std::string talks, sums;
    for (int i = 0; i < 60; ++i) {
      const std::string number = std::to_string(i % 10);
      talks += R"({"messages": [{"role": "user", "content": ")" + number +
               R"("}, {"role": "assistant", "content": ")" + number + number + "\"}]}\n";
      sums += R"({"prompt": ")" + number + R"(+1=", "completion": ")" + std::to_string(i % 10 + 1) +
              "\"}\n";
    }
    folder_.write("talks.jsonl", talks);
    folder_.write("sums.jsonl", sums);
  }
  launch::Ended run(const std::string& words) {
    return launch::shell("cd " + folder_.path() +
                         "; unset XDG_CONFIG_HOME FULLSHARD_CONFIG; export HOME=" + folder_.path() +
                         " OMP_NUM_THREADS=1; fullshard " + words);
  }
  launch::Ended train(const std::string& flags, int ranks = 2) {
    return run("train --model base --from-scratch --sequence-length 48 --micro-batch " +
               std::to_string(4 / ranks) +
               " --lr 0.01 --overwrite --output out --no-plan --ranks " + std::to_string(ranks) +
               " " + flags);
  }
  std::vector<json> metrics() {
    std::vector<json> lines;
    std::istringstream file(folder_.read("out/metrics.jsonl"));
    for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
    return lines;
  }
  json record() { return json::parse(folder_.read("out/run.json")); }

  launch::TemporaryFolder folder_;
};

// With rows of various lengths, only some batches are all labels: ranks must not decide alone.
TEST_F(FineTuning, LearnsAllOfRowsOnTwoRanksAsOnOne) {
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += R"({"text": ")" + std::string(i % 7 + 7, 'a') + "\"}\n";
  folder_.write("rows.jsonl", rows);
  std::vector<double> losses;
  for (const int ranks : {1, 2, 4}) {
    const auto ended = train("--data rows.jsonl --loss-on all --steps 12", ranks);
    ASSERT_EQ(ended.status, 0) << ended.output;
    losses.push_back(metrics().back()["loss"]);
  }
  EXPECT_NEAR(losses[1], losses[0], 1e-4);
  EXPECT_NEAR(losses[2], losses[0], 1e-4);
}

TEST_F(FineTuning, LearnsAnswersOnly) {
  const auto ended = train("--data talks.jsonl --steps 60");
  ASSERT_EQ(ended.status, 0) << ended.output;
  const double loss = metrics().back()["loss"];
  EXPECT_LT(loss, 2) << ended.output;
  EXPECT_EQ(folder_.read("out/model/chat_template.jinja"),
            folder_.read("base/chat_template.jinja"));
  const auto evaluated =
      run("eval --ranks 1 --model out/model --data talks.jsonl --sequence-length 48 --json");
  ASSERT_EQ(evaluated.status, 0) << evaluated.output;
  // Two letters and "</s>" of each answer.
  EXPECT_THAT(evaluated.output, HasSubstr("\"labels\":360"));
  const auto all =
      run("eval --ranks 1 --model out/model --data talks.jsonl --sequence-length 48 --json "
          "--loss-on all");
  EXPECT_THAT(all.output, HasSubstr("\"labels\":960"));  // "<u>0</s><a>00</s>" but for the first
}

// Packed or not, the labels of an evaluation are the same, and so is its loss.
TEST_F(FineTuning, PackingChangesNoLoss) {
  ASSERT_EQ(train("--data sums.jsonl talks.jsonl --packing --steps 3").status, 0);
  const std::string words = "eval --ranks 1 --model out/model --sequence-length 48 --json --data ";
  const auto plain = run(words + "sums.jsonl talks.jsonl");
  const auto packed = run(words + "sums.jsonl talks.jsonl --packing");
  ASSERT_EQ(plain.status, 0) << plain.output;
  ASSERT_EQ(packed.status, 0) << packed.output;
  const auto result = [](const launch::Ended& ended) {
    return json::parse(ended.output.substr(ended.output.find('{')));
  };
  EXPECT_EQ(result(plain)["labels"], result(packed)["labels"]);
  EXPECT_NEAR(result(plain)["loss"].get<double>(), result(packed)["loss"].get<double>(), 1e-5);
  EXPECT_LT(result(packed)["examples"].get<int>() * 3, result(plain)["examples"].get<int>());
}

TEST_F(FineTuning, PackedRowsAreRecomputedAlike) {
  const auto losses = [&](const std::string& flags) {
    const auto ended = train("--data sums.jsonl --packing --steps 3 " + flags);
    EXPECT_EQ(ended.status, 0) << ended.output;
    std::vector<std::string> found;
    for (const json& line : metrics()) found.push_back(line["loss"].dump());
    return found;
  };
  const auto kept = losses("");
  EXPECT_EQ(kept.size(), 3U);
  EXPECT_EQ(losses("--recompute"), kept);
}

TEST_F(FineTuning, MixturesAreTheSameOnAnyNumberOfRanks) {
  const std::string flags =
      "--data sums.jsonl:0.8 --data talks.jsonl:0.2 --validation-split 0.1 --steps 6 --eval-every "
      "3";
  ASSERT_EQ(train(flags, 1).status, 0);
  const auto one = metrics();
  ASSERT_EQ(train(flags, 2).status, 0);
  const auto two = metrics();
  ASSERT_EQ(one.size(), 6U);
  ASSERT_EQ(two.size(), 6U);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(one[i]["tokens"], two[i]["tokens"]) << i;
    EXPECT_NEAR(one[i]["loss"].get<double>(), two[i]["loss"].get<double>(), 1e-4) << i;
  }
  EXPECT_NEAR(one[5]["eval_loss"].get<double>(), two[5]["eval_loss"].get<double>(), 1e-4);
}

TEST_F(FineTuning, EndsWhenTheEvaluationLossNoLongerFalls) {
  const auto ended = train(
      "--data sums.jsonl --validation-split 0.2 --steps 50 --eval-every 2 --save-every 100 "
      "--early-stopping-patience 2 --early-stopping-threshold 100");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_EQ(metrics().back()["step"], 6);
  EXPECT_EQ(record()["status"], "done");
  EXPECT_THAT(record()["stopped_early"].get<std::string>(),
              HasSubstr("has not fallen by more than 100 in 2 evaluations"));
  EXPECT_THAT(ended.output, HasSubstr("stopped early"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/checkpoints/step-000006"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/model/config.json"));
}

TEST_F(FineTuning, SaysWhichFlagsNeedOthers) {
  const auto said = [&](const std::string& flags, const std::string& what) {
    const auto ended = train("--data sums.jsonl --steps 2 " + flags);
    EXPECT_EQ(ended.status, 2) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(what));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out/run.json"));
  };
  said("--early-stopping-patience 2", "--early-stopping-patience: counts evaluations");
  said("--early-stopping-threshold 1", "has no effect without --early-stopping-patience");
  said("--validation-split 0.1 --eval-data talks.jsonl",
       "--validation-split: is given with --eval-data");
  said("--validation-split 1", "--validation-split");
  said("--loss-on answers", "--loss-on");
}

TEST_F(FineTuning, RowsThatAreWrongAreNamed) {
  folder_.write("wrong.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\"}\n");
  const auto ended = train("--data wrong.jsonl --steps 2");
  EXPECT_EQ(ended.status, 4) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("wrong.jsonl:2: is not a document"));
}

// With the run's own folder, with the one it began with, and with neither.
TEST_F(FineTuning, AnExportedCheckpointHasTheTokenizer) {
  ASSERT_EQ(train("--data talks.jsonl --steps 1 --save-every 1").status, 0);
  const auto expect_tokenizer_in = [&](const std::string& exported) {
    for (const std::string name : {"tokenizer_config.json", "chat_template.jinja"}) {
      EXPECT_EQ(folder_.read(exported + "/" + name), folder_.read("base/" + name)) << exported;
    }
  };
  const launch::Ended first = run("checkpoint export out/checkpoints first");
  EXPECT_EQ(first.output,
            "first/model.safetensors\nfirst/config.json\nfirst/chat_template.jinja\n"
            "first/tokenizer_config.json\n");
  expect_tokenizer_in("first");
  std::filesystem::remove_all(folder_ / "out/model");
  EXPECT_EQ(run("checkpoint export out/checkpoints second").status, 0);
  expect_tokenizer_in("second");
  // Without a run, out of the folder itself.
  EXPECT_EQ(run("checkpoint export second third").status, 0);
  expect_tokenizer_in("third");
  ASSERT_EQ(train("--data talks.jsonl --steps 1 --save-every 1 --tokenizer base/").status, 0);
  std::filesystem::remove_all(folder_ / "out/model");
  std::filesystem::rename(folder_ / "base", folder_ / "elsewhere");
  const launch::Ended without = run("checkpoint export out/checkpoints fourth");
  EXPECT_EQ(without.status, 0);
  EXPECT_THAT(
      without.output,
      HasSubstr("note: fourth: has no tokenizer: that of base/ is missing; copy its files\n"));
}

}  // namespace
}  // namespace fullshard::cli
