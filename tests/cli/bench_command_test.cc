// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/commands/bench_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "fullshard/cli/flags/cuda_build.h"
#include "tests/files.h"
#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using testing::TemporaryFolder;

TEST(Bench, FindsSettingsOfADiskToPaste) {
  const launch::TemporaryFolder folder;
  const launch::Ended ended = launch::shell("fullshard bench disk " + folder.path() +
                                            " --quick --size 1MiB --json 2> /dev/null");
  ASSERT_EQ(ended.status, 0) << ended.output;
  const auto found = nlohmann::json::parse(ended.output);
  EXPECT_EQ(found["folder"], folder.path());
  EXPECT_EQ(found["bytes"], 1 << 20);
  EXPECT_EQ(found["tried"].size(), 5u);
  EXPECT_GT(found["read_gb_per_s"].get<double>(), 0);
  EXPECT_EQ(found["aio"].size(), 5u);
  EXPECT_THAT(testing::entries_of(folder.path()), IsEmpty());
  // It prints a configuration that is read without a message about aio.
  const launch::Ended table = launch::shell("fullshard bench disk " + folder.path() +
                                            " --quick --size 1MiB 2> /dev/null | tail -n 1 > " +
                                            (folder / "ds.json") + " && fullshard config check " +
                                            (folder / "ds.json") + " --set train_batch_size=8");
  EXPECT_EQ(table.status, 0) << table.output;
  EXPECT_THAT(table.output, Not(HasSubstr("aio")));
}

TEST(Bench, TellsWhatIsWrongWithItsWords) {
  EXPECT_EQ(launch::shell("fullshard bench").output,
            "error: fullshard bench: missing subcommand; choose one of disk, bus, comm, "
            "optimizer, step, kernels\n");
  EXPECT_EQ(launch::shell("fullshard bench dsik /tmp").output,
            "error: fullshard bench: no command 'dsik', did you mean 'disk'?; choose one of disk, "
            "bus, comm, optimizer, step, kernels\n");
  const launch::Ended missing =
      launch::shell("fullshard bench disk /nowhere/at/all --quick --size 1MiB");
  EXPECT_EQ(missing.status, 4);
  EXPECT_THAT(missing.output,
              EndsWith("error: offload: no file can be made in '/nowhere/at/all': No such file or "
                       "directory; name a folder on a local disk that exists and that this user "
                       "may write to\n"));
  const launch::Ended huge = launch::shell("fullshard bench disk /tmp --size 1000000TiB");
  EXPECT_EQ(huge.status, 3) << huge.output;
  EXPECT_THAT(launch::shell("fullshard bench disk /tmp --size 12").output,
              EndsWith("error: bench disk: 12 bytes, expected at least 4096\n"));
}

// Rejected before anything is started, measured or printed.
TEST(Bench, TakesSizesFromAByteToWhatCanBeMeasured) {
  for (const std::string size : {"-5", "0", "-5KiB", "0MB"}) {
    for (const auto& [command, most] : std::map<std::string, std::string>{
             {"comm --device cpu", "1 TiB"}, {"disk /tmp", "2048 PiB"}, {"bus", "64 GiB"}}) {
      const launch::Ended ended =
          launch::shell("fullshard bench " + command + " --quick --size " + size);
      EXPECT_EQ(ended.status, 2) << command;
      EXPECT_EQ(ended.output,
                "error: --size: is " + size + ", expected a size from 1 B to " + most + "\n");
    }
  }
  EXPECT_EQ(launch::shell("fullshard bench comm --device cpu --size 100TB").output,
            "error: --size: is 100TB, expected a size from 1 B to 1 TiB\n");
}

TEST(Bench, SaysWhatDoesNotFitBeforeItIsMade) {
  const launch::Ended optimizer =
      launch::shell("fullshard bench optimizer --device cpu --quick --parameters 1e12");
  EXPECT_EQ(optimizer.status, 3);
  EXPECT_THAT(optimizer.output,
              ::testing::MatchesRegex("error: bench optimizer: 1 T parameters: needs 14.6 TiB, but "
                                      "this host has .* free; give fewer --parameters\n"));
  const launch::Ended comm =
      launch::shell("fullshard bench comm --device cpu --ranks 2 --quick --size 1TiB");
  EXPECT_EQ(comm.status, 3);
  EXPECT_THAT(comm.output,
              ::testing::MatchesRegex("error: bench comm: 1 TiB on 2 ranks here: needs 5 TiB, but "
                                      "this host has .* free; give a smaller --size\n"));
}

TEST(Bench, OfTheBusIsOfHostMemoryWithoutAGpu) {
  const tiers::HostMemorySpeed memory{.num_threads = 4, .bytes_per_second = 70.25e9};
  EXPECT_EQ(bus_text(memory, {}, false),
            "this build has no CUDA: host memory only\n"
            "host memory, 4 threads\n"
            "  triad              70.2 GB/s\n");
  EXPECT_THAT(bus_text(memory, {}, true), StartsWith("no GPU is visible: host memory only\n"));
  const tiers::BusSpeed bus{
      .device = "A \"GPU\"", .to_device = 55.4e9, .to_host = 55.3e9, .both = 1e11};
  EXPECT_EQ(bus_text(memory, bus, true),
            "A \"GPU\", page-locked memory\n"
            "  to the device      55.4 GB/s\n"
            "  to the host        55.3 GB/s\n"
            "  both at once      100.0 GB/s\n"
            "host memory, 4 threads\n"
            "  triad              70.2 GB/s\n");
  const auto json = nlohmann::json::parse(bus_json(memory, bus));
  EXPECT_EQ(json["device"]["name"], "A \"GPU\"");
  EXPECT_EQ(json["device"]["both_gb_per_s"], 100);
  EXPECT_EQ(json["host"]["threads"], 4);
  EXPECT_TRUE(nlohmann::json::parse(bus_json(memory, {}))["device"].is_null());
}

TEST(Bench, OfTheBusRuns) {
  const launch::Ended ended = launch::shell("fullshard bench bus --quick --size 1MiB --json");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_GT(nlohmann::json::parse(ended.output)["host"]["triad_gb_per_s"].get<double>(), 0);
}

nlohmann::json measured(const std::string& words) {
  const launch::Ended ended = launch::shell("fullshard bench " + words + " --json");
  EXPECT_EQ(ended.status, 0) << ended.output;
  return nlohmann::json::parse(ended.output);
}

TEST(BenchComm, MeasuresEveryCollectiveInEverySize) {
  const auto found = measured("comm --device cpu --ranks 3 --quick --size 100KB,7 --dtype bf16");
  EXPECT_EQ(found["ranks"], 3);
  EXPECT_EQ(found["hosts"], 1);
  EXPECT_EQ(found["backend"], "shm");
  EXPECT_GT(found["copy_gb_per_s"]["all_ranks"], 0);
  // For (N - 1) / N of the bytes, twice that, or all of them.
  const std::map<std::string, double> on_the_bus = {
      {"all_gather", 2.0 / 3}, {"all_gather in place", 2.0 / 3}, {"reduce_scatter", 2.0 / 3},
      {"all_reduce", 4.0 / 3}, {"all_to_all", 2.0 / 3},          {"broadcast", 1.0}};
  const auto& rows = found["collectives"];
  ASSERT_EQ(rows.size(), 2 * on_the_bus.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    // As many elements of two bytes for each of three ranks.
    EXPECT_EQ(row["bytes"], i < on_the_bus.size() ? 102'396 : 6);
    EXPECT_GT(row["of_copy"], 0);
    const double algorithm = row["algorithm_gb_per_s"], seconds = row["seconds"];
    EXPECT_NEAR(algorithm * seconds * 1e9 / row["bytes"].get<double>(), 1, 1e-9);
    EXPECT_NEAR(row["bus_gb_per_s"].get<double>() / algorithm, on_the_bus.at(row["name"]), 1e-9);
  }
}

TEST(BenchComm, FindsItsRankInTheEnvironment) {
  const launch::Ended ended = launch::shell(
      "fullshard launch --ranks 2 --tee 0 -- fullshard bench comm --device cpu --quick --size "
      "64KiB "
      "--backend gloo");
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.output, HasSubstr("2 ranks on gloo, fp32\n"));
  EXPECT_THAT(ended.output, HasSubstr("all_reduce               64 KiB"));
  EXPECT_THAT(ended.output, Not(HasSubstr("of a copy")));  // gloo's ranks share no memory
}

TEST(BenchComm, RefusesOneRankAndWhatIsNotThere) {
  const launch::Ended alone = launch::shell("fullshard bench comm --device cpu --ranks 1");
  EXPECT_EQ(alone.status, 2);
  EXPECT_EQ(alone.output, "error: bench comm: needs at least two ranks; give --ranks 2 or more\n");
  if (!is_cuda_build()) {
    EXPECT_EQ(launch::shell("fullshard bench comm --device cuda").output,
              "error: --device: is cuda, but this build has no CUDA; use --device cpu\n");
  }
}

TEST(BenchOptimizer, CountsTheBytesThatAnUpdateMustMove) {
  const std::map<std::string, int> bytes = {{"AdamW", 28}, {"Lion", 20}, {"Adagrad", 20}};
  for (const auto& [name, each] : bytes) {
    const auto found = measured(
        "optimizer --device cpu --threads 1 --quick --parameters 1e5 "
        "--precision bf16 --optimizer " +
        name);
    EXPECT_EQ(found["optimizer"], name);
    EXPECT_EQ(found["parameters"], 100'000);
    EXPECT_EQ(found["threads"], 1);
    ASSERT_EQ(found["lines"].size(), 2u);
    EXPECT_EQ(found["lines"][0]["bytes_per_parameter"], each);
    EXPECT_EQ(found["lines"][1]["bytes_per_parameter"], each + 4);
    for (const auto& line : found["lines"]) {
      EXPECT_NEAR(line["gb_per_s"].get<double>() * line["seconds_per_1e9"].get<double>(),
                  line["bytes_per_parameter"].get<double>(), 1e-6);
      EXPECT_GT(line["of_copy"], 0);
    }
  }
  EXPECT_THAT(launch::shell("fullshard bench optimizer --optimizer Addam").output,
              StartsWith("error: --optimizer: optimizer.type: is \"Addam\", expected one of"));
}

const std::string kBenchedLlama = " --device cpu --model " FULLSHARD_SOURCE_DIR
                                  "/tests/fixtures/models/llama --sequence-length 16 ";

TEST(BenchStep, TrainsAndKeepsNothing) {
  const launch::TemporaryFolder folder;
  const launch::Ended ended =
      launch::shell("TMPDIR=" + folder.path() +
                    " fullshard bench step --json --phases --steps 3 "
                    "--ranks 2 --micro-batch 2 --accumulate 3 --zero-stage 2 --clip 0" +
                    kBenchedLlama);
  ASSERT_EQ(ended.status, 0) << ended.output;
  const auto found = nlohmann::json::parse(ended.output);
  EXPECT_EQ(found["ranks"], 2);
  EXPECT_EQ(found["steps"], 3);  // of five
  EXPECT_EQ(found["tokens"], 2 * 2 * 3 * 16);
  EXPECT_LE(found["fastest_s"], found["step_s"]);
  EXPECT_LE(found["step_s"], found["slowest_s"]);
  EXPECT_NEAR(found["tokens_per_s"].get<double>() * found["step_s"].get<double>(), 192, 1e-6);
  EXPECT_GT(found["comm_s"], 0);
  EXPECT_GT(found["forward_s"], 0);
  EXPECT_GT(found["optimizer_s"], 0);
  EXPECT_GT(found["planned_bytes"], 0);
  EXPECT_GT(found["host_peak_bytes"], found["planned_bytes"]);
  EXPECT_THAT(testing::entries_of(folder.path()), IsEmpty());
}

TEST(BenchStep, WritesNothingIntoTheFilesOfRuns) {
  const launch::TemporaryFolder folder;
  folder.write("ds.json",
               R"({"train_micro_batch_size_per_gpu": 1, "tensorboard": {"enabled": true,
                   "output_path": ")" +
                   (folder / "events") +
                   R"("}, "csv_monitor": {"enabled": true, "output_path": ")" + (folder / "csv") +
                   R"("}, "flops_profiler": {"enabled": true, "output_file": ")" +
                   (folder / "flops.txt") + R"("}})");
  const auto found = measured("step --steps 1 --config " + (folder / "ds.json") + kBenchedLlama);
  EXPECT_GT(found["step_s"], 0);
  EXPECT_THAT(testing::entries_of(folder.path()), ::testing::ElementsAre("ds.json"));
}

TEST(BenchStep, TimesPhasesOfEveryFamilyAndASchedule) {
  const launch::TemporaryFolder folder;
  folder.write("fsdp.yaml", "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n");
  const auto found = measured("step --steps 1 --phases --schedule cosine --config " +
                              (folder / "fsdp.yaml") + kBenchedLlama);
  EXPECT_GT(found["backward_s"], 0);
}

TEST(BenchStep, ShowsWithVerboseWhatTrainShows) {
  const std::string words = "fullshard bench step --steps 1 --json --verbose" + kBenchedLlama;
  const launch::Ended ended = launch::shell(words + "2>&1 >/dev/null");
  EXPECT_THAT(ended.output, HasSubstr("--schedule "));
  EXPECT_THAT(ended.output, HasSubstr("root (LlamaForCausalLM)"));
  const launch::Ended result = launch::shell(words + "2>/dev/null");
  EXPECT_TRUE(nlohmann::json::accept(result.output)) << result.output;
}

TEST(BenchStep, SaysWhatItCannotDoAsTrainDoes) {
  const auto said = [](const std::string& words) {
    return launch::shell("fullshard bench step --steps 1" + words);
  };
  const launch::Ended encoder =
      said(" --device cpu --model " FULLSHARD_SOURCE_DIR "/tests/fixtures/models/t5");
  EXPECT_EQ(encoder.status, 2);
  EXPECT_EQ(
      encoder.output,
      "error: bench step: T5ForConditionalGeneration cannot be trained on random tokens; give "
      "--data, as for train\n");
  EXPECT_EQ(said(kBenchedLlama + "--data /nowhere.txt").status, 4);
  const launch::Ended divided = said(kBenchedLlama + "--ranks 2 --sharding-factor 3");
  EXPECT_EQ(divided.status, 2);
  EXPECT_THAT(divided.output, HasSubstr("--sharding-factor"));
  EXPECT_EQ(said(kBenchedLlama + "--nnodes 2").output,
            "error: bench step: works on the ranks of one host; leave out the other hosts\n");
}

TEST(Offload, OnACpuIsANoteAndAWrongWordAnError) {
  const launch::Ended wrong =
      launch::shell("fullshard train --model m --data d --device cpu --offload params");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.output, HasSubstr("--offload: is 'params', expected optimizer, param or all"));
}

}  // namespace
}  // namespace fullshard::cli
