// SPDX-License-Identifier: Apache-2.0
// Malicious files: they cause an error message after little work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "fullshard/config/document/reader.h"
#include "fullshard/config/explain.h"
#include "fullshard/config/plan.h"
#include "tests/files.h"

namespace fullshard::config {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// CPU seconds of this process, whatever else the machine does. Linear code takes well under one;
// quadratic code took half a minute.
constexpr double kPatience = 10;

template <class Action>
double cpu_seconds(const Action& action) {
  const std::clock_t start = std::clock();
  action();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

std::string hostile_error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

template <class Piece>
std::string repeated(int times, const Piece& piece) {
  std::string text;
  for (int i = 0; i < times; ++i) text += piece(i);
  return text;
}

TEST(HostileConfig, ManyKeysTakeLittleWork) {
  constexpr int kKeys = 100'000;
  const std::string in_a_line =
      "{" + repeated(kKeys, [](int i) { return fmt::format("\"gradient_clip{}\": {}, ", i, i); }) +
      "}";
  const std::string in_lines =
      repeated(kKeys, [](int i) { return fmt::format("gradient_clip{}: {}\n", i, i); });
  for (const std::string& text : {in_a_line, in_lines}) {
    ASSERT_LE(text.size(), kMaxConfigBytes);
    size_t errors = 0;
    size_t suggestions = 0;
    const double seconds = cpu_seconds([&] {
      const PlanReading reading = read_plan(text, "f");
      errors = reading.problems.errors.size();
      for (const Problem& problem : reading.problems.errors) {
        suggestions += problem.suggestion.empty() ? 0 : 1;
      }
      EXPECT_GT(reading.problems.text().size(), errors);
    });
    EXPECT_LT(seconds, kPatience);
    EXPECT_GE(errors, size_t{kKeys});
    EXPECT_LE(suggestions, size_t{101});  // and the one about distributed_type
  }
}

TEST(HostileConfig, OneLongLineTakesLittleWork) {
  constexpr int kItems = 150'000;
  const std::vector<std::string> texts = {
      "{\"a\": [" + repeated(kItems, [](int i) { return std::to_string(i) + ", "; }) + "]}",
      "{\"a\": [" + repeated(kItems, [](int) { return "1, "; }) + std::string(1 << 20, ' ') + "]}",
      "{" + repeated(kItems, [](int) { return "\"a\": 1, "; }) + "}",
      "{\"a\": 1" + repeated(500'000, [](int) { return "\xC2\xA0"; }) + "}",
      "{\"" + std::string(3 << 20, 'x') + "\": 1}",
      "x: {" + repeated(kItems, [](int) { return "a: 1, "; }) + "}\n"};
  for (const std::string& text : texts) {
    EXPECT_LT(cpu_seconds([&] { EXPECT_FALSE(read_plan(text, "f").problems.ok()); }), kPatience)
        << text.substr(0, 40);
  }
}

// A message for each of them would not help and would not fit in memory.
TEST(HostileConfig, LookAlikesEndAfterAHundred) {
  Problems problems;
  read_config("{" + repeated(500'000, [](int) { return "\xC2\xA0"; }) + "}", "f", problems);
  ASSERT_EQ(problems.errors.size(), 101u);
  EXPECT_EQ(problems.errors[99].text(),
            "f:1: '\xC2\xA0' at column 101 is U+00A0 (no-break space); write an ordinary space");
  EXPECT_EQ(problems.errors[100].text(),
            "f:1: found '\xC2\xA0' (U+00A0, no-break space) again at column 102");
}

TEST(HostileConfig, DeepNestingIsAMessageInYamlToo) {
  const std::string flow = "a: " + std::string(100'000, '[');
  EXPECT_FALSE(read_plan(flow, "f").problems.ok());
  const std::string block =
      repeated(1000, [](int i) { return std::string(static_cast<size_t>(i), ' ') + "a:\n"; });
  EXPECT_FALSE(read_plan(block, "f").problems.ok());
  const std::string lists = repeated(100'000, [](int) { return "- "; }) + "1\n";
  EXPECT_FALSE(read_plan(lists, "f").problems.ok());
}

TEST(HostileConfig, ReadsNoMoreThanAConfigurationMayHave) {
  const ConfigText zeros = read_config_file("/dev/zero");
  EXPECT_GT(zeros.text.size(), kMaxConfigBytes);
  EXPECT_LE(zeros.text.size(), kMaxConfigBytes + (1 << 20));
  EXPECT_EQ(hostile_error_of([] { Plan::load("/dev/zero"); }),
            "/dev/zero: expected a configuration of at most 4194304 bytes, but it has more");
}

TEST(HostileConfig, SaysWhatIsNoFile) {
  const fullshard::testing::TemporaryFolder folder;
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(hostile_error_of([&] { Plan::load(pipe); }),
            pipe +
                ": is a pipe, which can be read only once, but every rank reads the "
                "configuration; save it to a file");
  EXPECT_EQ(hostile_error_of([&] { Plan::load(folder.path()); }),
            folder.path() + ": is a folder, expected a configuration file; name the file");
  const std::string file = folder.file("empty.yaml");
  for (const std::string text : {"", "# nothing\n"}) {
    std::ofstream(file) << text;
    EXPECT_EQ(hostile_error_of([&] { Plan::load(file); }),
              file + ":1: empty, expected keys and values");
  }
}

TEST(HostileConfig, NamesArePrintedEscaped) {
  const PlanReading reading =
      read_plan("{\"a\\u001b[31m\\u0000\\nb\": 1, \"fp16\": {\"enabled\": \"\\u001b[2J\"}}", "f");
  EXPECT_EQ(reading.problems.text(),
            "error: f:1: a\\x1b[31m\\x00\\nb: unknown key\n"
            "error: f:1: fp16.enabled: is \"\\x1b[2J\", expected true or false or \"auto\"\n"
            "note: --unknown-keys warn lets unknown keys pass, with a warning each\n");
  const nlohmann::json problems = nlohmann::json::parse(reading.problems.json());
  EXPECT_EQ(problems["problems"][0]["key"], std::string("a\x1b[31m\0\nb", 9));
  // A folder's name may be any bytes.
  EXPECT_THAT(read_plan("{\"x\": 1}", "\xFF\x1b").problems.text(),
              StartsWith("error: \\xff\\x1b:1: x: unknown key"));
  EXPECT_TRUE(nlohmann::json::accept(read_plan("{\"x\": 1}", "\xFF\x1b").problems.json()));
  const Plan plan = Plan::parse(
      R"({"train_batch_size": 8, "csv_monitor": {"job_name": "\u007f\u001b"}})", "\x1b");
  EXPECT_THAT(explain(plan).text(), HasSubstr("\\u007f\\u001b"));
  EXPECT_EQ(explain(plan).text().find('\x1b'), std::string::npos);
}

TEST(HostileConfig, BatchSizesBeyondAllReasonAreOneErrorEach) {
  for (const std::string value : {"9223372036854775807", "9223372036854775808", "1e300"}) {
    for (const std::optional<int64_t> ranks :
         {std::optional<int64_t>(), std::optional<int64_t>(3)}) {
      const PlanReading reading =
          read_plan(fmt::format(R"({{"train_batch_size": {0}, "train_micro_batch_size_per_gpu": {0},
            "gradient_accumulation_steps": {0}}})",
                                value),
                    "f", {.ranks = ranks, .assumed_ranks = 1});
      ASSERT_EQ(reading.problems.errors.size(), 3u) << reading.problems.text();
      EXPECT_EQ(reading.problems.errors[0].text(),
                "f:1: train_batch_size: is " + value +
                    ", expected an integer from 1 to 1000000000000 or \"auto\"");
    }
  }
  const PlanReading reading = read_plan(R"({"train_batch_size": 9223372036854775807})", "f");
  EXPECT_EQ(reading.problems.errors.size(), 1u) << reading.problems.text();
  const PlanReading shards = read_plan(
      "distributed_type: FSDP\nnum_processes: 2\nparallelism_config:\n"
      "  parallelism_config_dp_shard_size: 4611686018427387904\n"
      "  parallelism_config_dp_replicate_size: 4611686018427387904\n"
      "fsdp_config:\n  fsdp_version: 2\n",
      "f");
  EXPECT_EQ(shards.problems.errors.size(), 2u) << shards.problems.text();
}

}  // namespace
}  // namespace fullshard::config
