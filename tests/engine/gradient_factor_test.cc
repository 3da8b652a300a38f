// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/gradients/gradient_factor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/errors.h"

namespace fullshard::testing {
namespace {

TEST(GradientFactor, OfALossIsTheScaleOverTheMicroBatches) {
  EXPECT_EQ(engine::loss_factor(1, 1), 1);
  EXPECT_EQ(engine::loss_factor(65536, 1), 65536);
  EXPECT_EQ(engine::loss_factor(65536, 4), 16384);
  EXPECT_EQ(engine::loss_factor(1, 3), 1.0 / 3);
}

TEST(GradientFactor, OfAMeanIsOneOverTheRanks) {
  EXPECT_EQ(engine::mean_factor(1), 1);
  EXPECT_EQ(engine::mean_factor(2), 0.5);
  EXPECT_EQ(engine::mean_factor(3), 1.0 / 3);
}

// In fp32, with torch's addend: 1 / (4 + 1e-6) is 0.25 less one step.
TEST(GradientFactor, ClipsInTorchsArithmetic) {
  EXPECT_EQ(engine::clip_coefficient(1, 4), 1.0f / (4.0f + 1e-6f));
  EXPECT_EQ(engine::clip_coefficient(1, 0.5), 1);
  EXPECT_EQ(engine::clip_coefficient(1, 1), 1.0f / (1.0f + 1e-6f));
  EXPECT_LT(engine::clip_coefficient(1, 1), 1);
  EXPECT_EQ(engine::clip_coefficient(1, 0), 1);
  EXPECT_EQ(engine::clip_coefficient(1, std::numeric_limits<double>::infinity()), 0);
  EXPECT_EQ(engine::clip_coefficient(1, std::nan("")), 1);
}

TEST(GradientFactor, IsOneAtFirst) {
  EXPECT_EQ(engine::GradientFactor().value(), 1);
  EXPECT_EQ(engine::GradientFactor().loss_scale(), 1);
}

TEST(GradientFactor, TakesTheLossScaleOutOfNormAndStep) {
  engine::GradientFactor factor;
  factor.set_loss_scale(1024);
  EXPECT_EQ(factor.unscaled(4096), 4);
  EXPECT_EQ(factor.value(), 1.0 / 1024);
  factor.clip(1, factor.unscaled(4096));
  EXPECT_EQ(factor.value(), double{1.0f / (4.0f + 1e-6f)} / 1024);
}

TEST(GradientFactor, ForgetsTheClipAndKeepsTheLossScale) {
  engine::GradientFactor factor;
  factor.set_loss_scale(8);
  factor.clip(1, 100);
  factor.forget_clip();
  EXPECT_EQ(factor.value(), 0.125);
  EXPECT_EQ(factor.loss_scale(), 8);
}

TEST(GradientFactor, RefusesAScaleThatIsNoPositiveNumber) {
  engine::GradientFactor factor;
  for (const double scale : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_EQ(
        message_of([&] { factor.set_loss_scale(scale); }),
        fmt::format("set_loss_scale: the scale is {}, expected a positive, finite number", scale));
  }
  EXPECT_EQ(factor.loss_scale(), 1);
}

}  // namespace
}  // namespace fullshard::testing
