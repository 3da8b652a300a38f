// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "fullshard/config/plan.h"
#include "tests/config/fixtures.h"

namespace fullshard::config {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

struct Outcome {
  int status;
  std::string output;  // both streams
};

Outcome run(const std::string& arguments) {
  FILE* pipe =
      popen(("(" FULLSHARD_BINARIES "/fullshard config " + arguments + ") 2>&1").c_str(), "r");
  std::string output;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, n);
  const int status = pclose(pipe);
  return {WEXITSTATUS(status), output};
}

TEST(ConfigCommand, CheckExitsWithTwoForProblemsAndForNoFile) {
  const FixtureFolder folder("bad");
  const Outcome bad = run("check ds_typo_top.json");
  EXPECT_EQ(bad.status, 2);
  EXPECT_EQ(bad.output, read_text("ds_typo_top.expected"));
  EXPECT_EQ(run("check nowhere.json").status, 2);
  EXPECT_EQ(run("check ../good/ds_zero0.json").status, 0);
  EXPECT_EQ(run("check --allow-unknown ds_typo_top.json").status, 0);
}

TEST(ConfigCommand, CheckPrintsProblemsAsJson) {
  const FixtureFolder folder("bad");
  const Outcome outcome = run("check --json ds_typo_top.json");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(json::parse(outcome.output),
            json::parse(R"({"ok": false, "problems": [{"file": "ds_typo_top.json", "line": 3,
              "key": "gradient_clipp1ng", "message": "unknown key",
              "suggestion": "gradient_clipping"}], "warnings": []})"));
}

TEST(ConfigCommand, ExplainTakesRanksAndOverrides) {
  const FixtureFolder folder("good");
  const Outcome outcome =
      run("explain ds_zero1.json --json --ranks 4 --set zero_optimization.stage=2 --set "
          "gradient_clipping=0.5 2>/dev/null");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const json keys = json::parse(outcome.output);
  EXPECT_EQ(keys["train_batch_size"]["value"], 16);
  EXPECT_EQ(keys["zero_optimization.stage"]["value"], 2);
  EXPECT_EQ(keys["zero_optimization.stage"]["origin"], "flag");
  EXPECT_EQ(keys["gradient_clipping"]["value"], 0.5);
}

TEST(ConfigCommand, ConvertsIntoAFileAndNeverOverwritesUnasked) {
  const FixtureFolder folder("good");
  const auto out = std::filesystem::temp_directory_path() /
                   ("fullshard_convert_test_" + std::to_string(getpid()) + ".yaml");
  std::filesystem::remove(out);
  const std::string convert = "convert ds_zero2_auto.json --to accelerate --ranks 2 ";
  const Outcome shown = run(convert + "2>/dev/null");
  const Outcome written = run(convert + "--output " + out.string());
  EXPECT_EQ(written.status, 0) << written.output;
  EXPECT_THAT(written.output, HasSubstr(out.string() + ": written\n"));
  EXPECT_EQ(read_text(out.string()), shown.output);
  EXPECT_EQ(run(convert + "--output " + out.string()).status, 2);
  EXPECT_EQ(run(convert + "--overwrite --output " + out.string()).status, 0);
  std::filesystem::remove(out);
}

// Offload and schedule, which FSDP has no keys for.
TEST(ConfigCommand, ConvertsToAFileThatNamesTheDeepSpeedFile) {
  const FixtureFolder folder("good");
  const std::string convert = "convert ds_zero2_auto.json --to accelerate --ranks 2 ";
  EXPECT_THAT(run(convert).output,
              HasSubstr("--type DEEPSPEED keeps all of it: Accelerate's file names this one"));
  const Outcome named = run(convert + "--type DEEPSPEED 2>/dev/null");
  ASSERT_EQ(named.status, 0) << named.output;
  const Plan plan = Plan::parse(named.output, "a.yaml");
  EXPECT_EQ(plan.sharding.stage.value, 2);
  EXPECT_EQ(plan.offload.optimizer.device.value, "cpu");
  EXPECT_EQ(plan.launch.ranks.value, 2);
  EXPECT_EQ(plan.scheduler.type.value, Plan::load("ds_zero2_auto.json").scheduler.type.value);
  EXPECT_EQ(run("convert acc_fsdp1.yaml --to accelerate --type DEEPSPEED").status, 2);
}

TEST(ConfigCommand, LetsUnknownKeysPassWhereAskedTo) {
  const FixtureFolder folder("bad");
  EXPECT_EQ(run("check --unknown-keys warn ds_typo_top.json").status, 0);
  EXPECT_EQ(run("check --unknown_keys=error ds_typo_top.json").status, 2);
  EXPECT_EQ(run("check --unknown-keys perhaps ds_typo_top.json").status, 2);
}

TEST(ConfigCommand, AsksAndNeverOverwritesUnasked) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("fullshard_config_test_" + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  const std::string home = "XDG_CONFIG_HOME=" + folder.string() + " ";
  const auto ask = [&](const std::string& flags) {
    FILE* pipe = popen(("printf '3\\n' | " + home + FULLSHARD_BINARIES "/fullshard config " +
                        flags + " > /dev/null 2>&1")
                           .c_str(),
                       "r");
    return WEXITSTATUS(pclose(pipe));
  };
  EXPECT_EQ(ask(""), 0);
  EXPECT_THAT(read_text(folder / "fullshard/default_config.yaml"), HasSubstr("num_processes: 3\n"));
  EXPECT_EQ(ask(""), 2);
  EXPECT_EQ(ask("--overwrite"), 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace fullshard::config
