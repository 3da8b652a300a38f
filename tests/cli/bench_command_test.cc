// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/commands/bench_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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
  // What it prints is a configuration that is read without a word about aio.
  const launch::Ended table = launch::shell("fullshard bench disk " + folder.path() +
                                            " --quick --size 1MiB 2> /dev/null | tail -n 1 > " +
                                            (folder / "ds.json") + " && fullshard config check " +
                                            (folder / "ds.json") + " --set train_batch_size=8");
  EXPECT_EQ(table.status, 0) << table.output;
  EXPECT_THAT(table.output, Not(HasSubstr("aio")));
}

TEST(Bench, TellsWhatIsWrongWithItsWords) {
  EXPECT_EQ(
      launch::shell("fullshard bench").output,
      "error: fullshard bench: what is to be done is not said; there are disk, bus, kernels\n");
  EXPECT_EQ(launch::shell("fullshard bench dsik /tmp").output,
            "error: fullshard bench: no command 'dsik', did you mean 'disk'?; there are disk, "
            "bus, kernels\n");
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

TEST(Offload, OnACpuIsANoteAndAWrongWordAnError) {
  const launch::Ended wrong =
      launch::shell("fullshard train --model m --data d --device cpu --offload params");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.output, HasSubstr("--offload: is 'params', expected optimizer, param or all"));
}

}  // namespace
}  // namespace fullshard::cli
