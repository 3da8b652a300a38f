// SPDX-License-Identifier: Apache-2.0
// `train` with states and parameters on a disk: what it writes there, a disk that is full, and what
// is left on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/long_runs.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;

class OffloadRuns : public LongRuns {
 protected:
  OffloadRuns() { std::filesystem::create_directory(folder_ / "disk"); }

  // Bytes on the disk for that purpose, all ranks together.
  static int64_t disk_bytes(const nlohmann::json& record, const std::string& purpose) {
    int64_t bytes = 0;
    for (const auto& rank : record["memory_plan"]["ranks"]) {
      for (const auto& share : rank) {
        if (share["tier"] == "disk" && share["purpose"] == purpose) {
          bytes += share["bytes"].get<int64_t>();
        }
      }
    }
    return bytes;
  }
};

TEST_F(OffloadRuns, SayHowMuchIsWrittenToADiskInADay) {
  for (const std::string ranks : {"1", "2"}) {
    const std::string output = "run-" + ranks;
    const launch::Ended ended =
        run(words(output, "3") + "--ranks " + ranks + " --offload optimizer:disk");
    ASSERT_EQ(ended.status, 0) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(" TB a day are written to 'disk'\n"));
    const auto record = record_of(output);
    const int64_t states = disk_bytes(record, "optimizer");
    ASSERT_GT(states, 0);
    const auto& disk = record["disk"];
    EXPECT_EQ(disk["folders"], nlohmann::json({"disk"}));
    EXPECT_EQ(disk["bytes_written"], 3 * states);
    EXPECT_EQ(disk["bytes_read"], 3 * states);
    double seconds = 0;
    std::istringstream lines(folder_.read(output + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      seconds += nlohmann::json::parse(line)["step_s"].get<double>();
    }
    const double a_day = static_cast<double>(3 * states) / seconds * 86400;
    EXPECT_NEAR(disk["bytes_written_per_day"].get<double>(), a_day, a_day * 1e-9 + 1);
    EXPECT_THAT(folder_.read(output + "/report.html"), HasSubstr("written to disk"));
    EXPECT_GE(disk["read_wait_s"].get<double>(), 0);
    EXPECT_GE(disk["write_wait_s"].get<double>(), 0);
  }
}

TEST_F(OffloadRuns, WithoutADiskSayNothingOfOne) {
  const launch::Ended ended = run(short_run("run"));
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_FALSE(record_of("run").contains("disk"));
}

// A disk of one page, where this user may mount one.
TEST_F(OffloadRuns, EndBeforeTheFirstStepWhereTheDiskIsFull) {
  const std::string space = "unshare --user --map-root-user --mount ";
  if (launch::shell(space + "sh -c 'mount -t tmpfs -o size=4k none " + folder_ / "disk" + "'")
          .status != 0) {
    GTEST_SKIP() << "needs user namespaces that may mount a tmpfs";
  }
  for (const std::string ranks : {"1", "2"}) {
    const std::string output = "run-" + ranks;
    const launch::Ended ended = launch::shell(
        "cd " + folder_.path() + "; export HOME=" + folder_.path() + " OMP_NUM_THREADS=1; " +
        space + "sh -c 'mount -t tmpfs -o size=4k none disk && fullshard " + words(output, "3") +
        "--ranks " + ranks + " --offload optimizer:disk'");
    EXPECT_EQ(ended.status, 3) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(" are needed in 'disk', where "));
    EXPECT_THAT(ended.output, HasSubstr(" are free: No space left on device; free some space, or "
                                        "name a folder on another disk"));
    EXPECT_EQ(folder_.read(output + "/metrics.jsonl"), "");
  }
}

TEST_F(OffloadRuns, ThatAreKilledLeaveNothingOnTheDiskAndGoOn) {
  const launch::Ended ended =
      run_and(endless("run") + "--ranks 2 --save-every 1 --offload all:disk",
              until_checkpoint("run") + kill_all());
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "disk")) << ended.output;
  const int64_t last = last_step_of("run");
  const launch::Ended again = run(words("run", std::to_string(last + 20)) +
                                  "--ranks 2 --save-every 1000 --resume auto --offload all:disk");
  ASSERT_EQ(again.status, 0) << again.output;
  EXPECT_EQ(last_step_of("run"), last + 20);
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "disk"));
}

}  // namespace
}  // namespace fullshard::cli
