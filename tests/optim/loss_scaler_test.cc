// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/loss_scaler.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"

namespace fullshard::optim {
namespace {

LossScaleOptions options_of(const nlohmann::json& entry) {
  LossScaleOptions options;
  options.initial_scale_power = entry["initial_scale_power"];
  options.loss_scale_window = entry["loss_scale_window"];
  options.hysteresis = entry["hysteresis"];
  options.consecutive_hysteresis = entry["consecutive_hysteresis"];
  options.min_loss_scale = entry["min_loss_scale"];
  return options;
}

nlohmann::json recorded_scales() {
  std::ifstream file(FULLSHARD_SOURCE_DIR "/tests/fixtures/loss_scale/loss_scale.json");
  return nlohmann::json::parse(file);
}

TEST(LossScaler, FollowsDeepSpeedThroughScriptedOverflows) {
  int compared = 0;
  for (const auto& entry : recorded_scales()) {
    LossScaler scaler(options_of(entry));
    for (size_t i = 0; i < entry["steps"].size(); ++i) {
      const auto& step = entry["steps"][i];
      const bool ok = scaler.update(entry["overflows"][i]);
      EXPECT_EQ(ok, step[0] == "ok") << "step " << i << " of " << entry.dump();
      EXPECT_EQ(scaler.scale(), step[1]) << "step " << i << " of " << entry.dump();
      EXPECT_EQ(scaler.state().hysteresis, step[2]) << "step " << i << " of " << entry.dump();
      ++compared;
    }
  }
  EXPECT_GT(compared, 500);
}

TEST(LossScaler, GoesOnFromASavedState) {
  for (const auto& entry : recorded_scales()) {
    LossScaler scaler(options_of(entry)), resumed(options_of(entry));
    const size_t half = entry["steps"].size() / 2;
    for (size_t i = 0; i < entry["steps"].size(); ++i) {
      (void)scaler.update(entry["overflows"][i]);
      if (i == half) {
        resumed.restore(scaler.state());
      } else if (i > half) {
        (void)resumed.update(entry["overflows"][i]);
        EXPECT_EQ(resumed.scale(), scaler.scale());
      }
    }
  }
}

TEST(LossScaler, AFixedScaleStays) {
  LossScaler scaler({.loss_scale = 128});
  EXPECT_FALSE(scaler.is_dynamic());
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(scaler.update(i % 2 == 0));
  EXPECT_EQ(scaler.scale(), 128);
  EXPECT_EQ(LossScaler::none().scale(), 1);
}

TEST(LossScaler, NamesTheKeyOfABadSetting) {
  const auto message_of = [](const LossScaleOptions& options) -> std::string {
    try {
      LossScaler{options};
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message_of({.loss_scale = -1}),
            "loss_scale is -1, expected 0 (dynamic) or a positive, finite number");
  EXPECT_EQ(message_of({.initial_scale_power = 200}),
            "initial_scale_power is 200, expected 0 to 127");
  EXPECT_EQ(message_of({.loss_scale_window = 0}), "loss_scale_window is 0, expected at least 1");
  EXPECT_EQ(message_of({.hysteresis = 0}), "hysteresis is 0, expected at least 1");
  EXPECT_EQ(message_of({.min_loss_scale = 0}),
            "min_loss_scale is 0, expected a positive, finite number");
}

}  // namespace
}  // namespace fullshard::optim
