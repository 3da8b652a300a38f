// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kSimulateTiny =
    "fullshard simulate --model llama-tiny --precision bf16 --sequence-length 64 ";

TEST(SimulateCommand, WritesATableAPageAndATimeline) {
  const launch::TemporaryFolder folder;
  const auto table =
      launch::shell(kSimulateTiny + "--cluster h100 --ranks 8,16 --between 200Gb " + "--output " +
                    (folder / "out") + " --trace " + (folder / "trace.json"));
  ASSERT_EQ(table.status, 0) << table.output;
  EXPECT_THAT(table.output, StartsWith(" ranks      step  tokens/s/GPU"));
  EXPECT_THAT(table.output, HasSubstr("25 GB/s between hosts per GPU"));
  EXPECT_THAT(folder.read("out/simulation.html"), HasSubstr("Tokens/s per GPU"));
  const auto rows = nlohmann::json::parse(folder.read("out/simulation.json"));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1]["ranks"], 16);
  EXPECT_FALSE(nlohmann::json::parse(folder.read("trace.json"))["traceEvents"].empty());
  const auto one = launch::shell(kSimulateTiny + "--cluster h100 --ranks 8 --json");
  EXPECT_EQ(nlohmann::json::parse(one.output)["ranks"], 8) << one.output;
}

TEST(SimulateCommand, TellsWhatIsWrongAndEndsWithTwo) {
  const launch::TemporaryFolder folder;
  const std::string file = folder.write("c.yaml", "gpuu: {memory: 80GB}\n");
  const auto typo = launch::shell(kSimulateTiny + "--ranks 8 --cluster " + file);
  EXPECT_EQ(typo.status, 2);
  EXPECT_THAT(typo.output, HasSubstr(file + ":1: gpuu: no such key; did you mean 'gpu'?"));
  const auto model = launch::shell(
      "fullshard simulate --model /no/such --ranks 8 --cluster h100 --precision bf16");
  EXPECT_EQ(model.status, 2) << model.output;
  EXPECT_THAT(model.output, HasSubstr("/no/such"));
  const auto ranks = launch::shell(kSimulateTiny + "--ranks 12 --cluster h100");
  EXPECT_EQ(ranks.status, 2);
  EXPECT_THAT(ranks.output, HasSubstr("12 ranks do not fill hosts of 8 GPUs"));
  const auto zero = launch::shell(kSimulateTiny + "--ranks 8 --cluster h100 --inside 0GB/s");
  EXPECT_EQ(zero.status, 2);
  EXPECT_THAT(
      zero.output,
      EndsWith("--inside: is '0GB/s', expected a rate, such as 450GB/s or 400Gb/s, above zero\n"));
  const std::string without_disk = folder / "no_disk.yaml";
  folder.write("no_disk.yaml",
               "gpu: {memory: 80GB, memory_bandwidth: 3TB/s, bf16_tflops: 600}\ngpus_per_host: 8\n"
               "inside: {bandwidth: 450GB/s, latency: 3us}\n"
               "between: {bandwidth: 400Gb/s, latency: 14us}\nbus: 55GB/s\n");
  const auto disk =
      launch::shell(kSimulateTiny + "--ranks 8 --offload all:/tmp --cluster " + without_disk);
  EXPECT_EQ(disk.status, 2);
  EXPECT_THAT(disk.output, HasSubstr("does not say how fast disks are; add disk: 6GB/s"));
  const auto none = launch::shell(kSimulateTiny + "--ranks 8 --cluster h1000");
  EXPECT_EQ(none.status, 2);
}

// Where nothing is started, the flags for starting ranks do not exist.
TEST(SimulateCommand, TakesNoFlagsOfRanks) {
  for (const char* flag : {"--tee all", "--master-port 1", "--backend shm", "--seed 1"}) {
    for (const std::string& command :
         {kSimulateTiny + "--ranks 8 --cluster h100 ",
          std::string("fullshard estimate --model llama-tiny --ranks 8 "),
          std::string("fullshard bench kernels --model llama-tiny --device cpu ")}) {
      const auto refused = launch::shell(command + flag);
      EXPECT_EQ(refused.status, 2) << command << flag;
      EXPECT_THAT(refused.output, HasSubstr("no option '--")) << command << flag;
    }
  }
}

TEST(SimulateCommand, TakesTheTimeOfADisk) {
  const auto step_of = [](const std::string& disk) {
    const auto ran = launch::shell(
        kSimulateTiny + "--ranks 8 --cluster h100 --offload all:/tmp --json --disk " + disk);
    EXPECT_EQ(ran.status, 0) << ran.output;
    return nlohmann::json::parse(ran.output)["step_s"].get<double>();
  };
  const double slow = step_of("100MB/s"), slower = step_of("50MB/s");
  EXPECT_GT(slow, 10 * step_of("100TB/s"));
  EXPECT_NEAR(slower / slow, 2, 0.1);
}

TEST(BenchKernels, WritesATableThatSimulateReads) {
  const launch::TemporaryFolder folder;
  const std::string table = folder / "kernels.json";
  const auto bench = launch::shell(
      "fullshard bench kernels --model llama-tiny --precision bf16 --sequence-length 64 --device "
      "cpu "
      "--output " +
      table);
  ASSERT_EQ(bench.status, 0) << bench.output;
  const auto found = nlohmann::json::parse(folder.read("kernels.json"));
  EXPECT_GT(found["kernels"].size(), 10u);
  const auto simulated =
      launch::shell(kSimulateTiny + "--ranks 8 --cluster h100 --kernels " + table);
  EXPECT_EQ(simulated.status, 0) << simulated.output;
  EXPECT_THAT(simulated.output, HasSubstr("kernels as timed on CPU"));
}

}  // namespace
}  // namespace fullshard::cli
