// SPDX-License-Identifier: Apache-2.0
// What is measured, on disks that tests play, and once for real.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/tiers/disk_speed.h"
#include "fullshard/tiers/host_memory_speed.h"
#include "fullshard/tiers/wear.h"
#include "tests/errors.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Best with 256 KiB, 64 under way, two threads, one by one.
tiers::DiskSpeed played(const tiers::DiskSettings& settings) {
  double speed = 1e9;
  if (settings.block_size == 256 * 1024) speed += 1e9;
  speed += 1e7 * static_cast<double>(std::min<int64_t>(settings.queue_depth, 64));
  if (settings.queue_depth > 64) speed -= 1e6;
  if (settings.num_threads == 2) speed += 5e8;
  if (settings.single_submit) speed += 1e8;
  if (!settings.overlap_events) speed -= 3e8;
  return {
      .settings = settings, .read_bytes_per_second = speed, .write_bytes_per_second = speed / 2};
}

TEST(DiskSweep, FindsTheBestOfEachSettingAndTriesNoneTwice) {
  int num_told = 0;
  const tiers::DiskSweep sweep =
      tiers::best_disk_settings(false, played, [&](const tiers::DiskSpeed&) { ++num_told; });
  EXPECT_EQ(sweep.tried[sweep.best].settings, (tiers::DiskSettings{.block_size = 256 * 1024,
                                                                   .queue_depth = 64,
                                                                   .num_threads = 2,
                                                                   .single_submit = true,
                                                                   .overlap_events = true}));
  EXPECT_EQ(sweep.tried.size(), 1u + 3 + 5 + 3 + 1 + 1);
  EXPECT_EQ(num_told, static_cast<int>(sweep.tried.size()));
  EXPECT_EQ(sweep.tried[0].settings, tiers::DiskSettings{});
  const tiers::DiskSweep quick = tiers::best_disk_settings(true, played);
  EXPECT_EQ(quick.tried[quick.best].settings,
            (tiers::DiskSettings{.block_size = 256 * 1024, .queue_depth = 32, .num_threads = 2}));
  EXPECT_EQ(quick.tried.size(), 1u + 1 + 2 + 1);
}

TEST(DiskSpeed, IsMeasuredThroughAFileThatLeavesNothing) {
  const TemporaryFolder folder;
  const tiers::DiskBench bench{.folder = folder.path(), .bytes = 5 << 20, .is_quick = true};
  const tiers::DiskSpeed speed =
      tiers::measure_disk(bench, {.block_size = 1 << 16, .num_threads = 2});
  EXPECT_GT(speed.read_bytes_per_second, 0);
  EXPECT_GT(speed.write_bytes_per_second, 0);
  EXPECT_THAT(entries_of(folder.path()), IsEmpty());
  EXPECT_EQ(message_of([&] { tiers::measure_disk({.folder = folder.path(), .bytes = 0}, {}); }),
            "bench disk: 0 bytes, expected at least 4096");
}

TEST(DiskSpeed, WarnsBelowWhatAnNvmeDiskShouldDo) {
  EXPECT_THAT(tiers::slow_disk_warnings(
                  "/d", {.read_bytes_per_second = 3.5e9, .write_bytes_per_second = 3e9}),
              IsEmpty());
  EXPECT_THAT(
      tiers::slow_disk_warnings(
          "/d",
          {.read_bytes_per_second = 3.49e9, .write_bytes_per_second = 5e8, .is_direct = false}),
      ElementsAre("'/d' is read at 3.49 GB/s, expected 3.5 of an NVMe disk; it works, and steps "
                  "wait for it",
                  "'/d' is written at 0.50 GB/s, expected 3.0 of an NVMe disk; it works, and steps "
                  "wait for "
                  "it",
                  "the file system of '/d' refuses O_DIRECT: these are partly figures of memory"));
}

TEST(HostMemory, IsMeasuredOnAnyNumberOfThreads) {
  for (const int threads : {1, 3}) {
    const tiers::HostMemorySpeed speed = tiers::measure_host_memory(threads, 1 << 20, 2);
    EXPECT_EQ(speed.num_threads, threads);
    EXPECT_GT(speed.bytes_per_second, 0);
  }
  EXPECT_EQ(message_of([] { tiers::measure_host_memory(0, 1 << 20, 2); }),
            "bench bus: 0 threads, 2 rounds over 1048576 bytes, expected at least one of each");
}

TEST(Wear, IsWhatADayOfStepsWrites) {
  EXPECT_DOUBLE_EQ(tiers::bytes_written_per_day(1'000'000'000, 2.0), 43.2e12);
  EXPECT_DOUBLE_EQ(tiers::bytes_written_per_day(0, 2.0), 0);
  EXPECT_DOUBLE_EQ(tiers::bytes_written_per_day(10, 0), 0);
  EXPECT_EQ(tiers::wear_note("/nvme", 43.2e12), "43.2 TB a day are written to '/nvme'");
  EXPECT_EQ(
      tiers::wear_note("/nvme", 12e12, 1200),
      "12 TB a day are written to '/nvme'; a disk that endures 1200 TB is worn out in 100 days");
}

}  // namespace
}  // namespace fullshard::testing
