// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run_settings.h"

#include <gtest/gtest.h>

namespace fullshard::train {
namespace {

constexpr const char* kWatched = R"({
  "train_micro_batch_size_per_gpu": 1,
  "tensorboard": {"enabled": true, "output_path": "/of/the/user"},
  "csv_monitor": {"enabled": true, "output_path": "/of/the/user"},
  "comms_logger": {"enabled": true},
  "flops_profiler": {"enabled": true, "output_file": "/of/the/user/flops.txt"}
})";

RunSettings settings_told(std::optional<std::string> measured) {
  const Plan plan = Plan::parse(kWatched, "ds.json");
  return run_settings_of(plan_of_run(plan, {"FULLSHARD_MEASURED", std::move(measured)}));
}

TEST(RunSettings, OfARunAreThoseOfItsPlan) {
  const RunSettings settings = settings_told(std::nullopt);
  EXPECT_TRUE(settings.tensorboard.is_enabled && settings.csv_monitor.is_enabled);
  EXPECT_TRUE(settings.comms_log.is_enabled && settings.flops_profiler.is_enabled);
  EXPECT_FALSE(settings.records_phases);
}

// A user's files hold what runs were, not what they were timed with.
TEST(RunSettings, OfAMeasurementLeaveTheUsersFilesAlone) {
  for (const char* measured : {"steps", "phases"}) {
    const RunSettings settings = settings_told(measured);
    EXPECT_FALSE(settings.tensorboard.is_enabled || settings.csv_monitor.is_enabled);
    EXPECT_FALSE(settings.comms_log.is_enabled || settings.flops_profiler.is_enabled);
    EXPECT_EQ(settings.records_phases, std::string(measured) == "phases");
  }
}

}  // namespace
}  // namespace fullshard::train
