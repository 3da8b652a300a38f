// SPDX-License-Identifier: Apache-2.0
// Files from an untrusted source: an exit status and a message, never a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kHostileModels = FULLSHARD_SOURCE_DIR "/tests/fixtures/models/";

class HostileFiles : public ::testing::Test {
 protected:
  launch::Ended run(const std::string& words) {
    return launch::shell("cd " + folder_.path() + "; export HOME=" + folder_.path() +
                         " OMP_NUM_THREADS=1; fullshard " + words);
  }
  void write_model(const std::string& name, const std::string& config, bool with_weights) {
    std::filesystem::create_directories(folder_ / name);
    folder_.write(name + "/config.json", config);
    if (!with_weights) return;
    std::filesystem::copy(kHostileModels + "bert/model.safetensors",
                          folder_ / (name + "/model.safetensors"));
  }
  void expect_refusal(const std::string& model, const std::string& message) {
    folder_.write("t.bin", std::string(4000, '\1'));
    const launch::Ended ended =
        run("train --quiet --ranks 1 --data t.bin --sequence-length 16 --model " + model);
    EXPECT_EQ(ended.status, 4) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("error: " + model + "/config.json: " + message));
    EXPECT_THAT(ended.output, Not(HasSubstr("libtorch")));
  }

  launch::TemporaryFolder folder_;
};

TEST_F(HostileFiles, AConfigOfAHundredThousandBrackets) {
  std::string deep = "{\"model_type\": ";
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  write_model("deep", deep + std::string(100'000, '}') + "}", false);
  expect_refusal("deep", "is nested more than 100 deep at column 511");
}

TEST_F(HostileFiles, AConfigOfAMillionLayersWithAndWithoutWeights) {
  auto config = nlohmann::json::parse(std::ifstream(kHostileModels + "bert/config.json"));
  config["num_hidden_layers"] = 1'000'000;
  write_model("loaded", config.dump(), true);
  expect_refusal("loaded",
                 "no BERT model can be made of it:\n"
                 "  num_hidden_layers is 1000000: the weights beside it have 2");
  config["vocab_size"] = int64_t{1} << 40;
  write_model("new", config.dump(), false);
  expect_refusal("new",
                 "no BERT model can be made of it:\n"
                 "  vocab_size is 1099511627776: expected at most 268435456\n"
                 "  num_hidden_layers is 1000000: expected at most 10000");
}

TEST_F(HostileFiles, AReportOfALineOfAHundredThousandBrackets) {
  std::filesystem::create_directories(folder_ / "out");
  folder_.write("out/metrics.jsonl",
                "{\"step\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}\n");
  folder_.write("out/run.json", std::string(100'000, '['));
  const launch::Ended ended = run("report out");
  EXPECT_EQ(ended.status, 0) << ended.output;
  const std::string page = folder_.read("out/report.html");
  EXPECT_THAT(page, HasSubstr("metrics.jsonl:1: is nested more than 100 deep at column 109"));
  EXPECT_THAT(page, HasSubstr("run.json: is nested more than 100 deep at column 101"));
}

}  // namespace
}  // namespace fullshard::cli
