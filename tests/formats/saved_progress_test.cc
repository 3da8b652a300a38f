// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/torch/saved_progress.h"

#include <gtest/gtest.h>

#include "fullshard/formats/foreign/deepspeed_folder.h"
#include "fullshard/formats/torch/torch_file.h"
#include "tests/formats/checkpoint_fixture.h"

namespace fullshard::testing {
namespace {

// What DeepSpeed held after 5 steps, of which two overflowed.
TEST(SavedProgress, ReadsDeepSpeedsLossScaleAndSchedule) {
  for (const auto* name : {"resumable/zero2_fp16", "resumable/zero3_fp16"}) {
    SCOPED_TRACE(name);
    const formats::DeepSpeedFolder folder(checkpoint_fixture(name));
    const auto scale = folder.loss_scale();
    ASSERT_TRUE(scale.has_value());
    EXPECT_TRUE(scale->is_dynamic);
    EXPECT_EQ(scale->scale, 131072);
    EXPECT_EQ(scale->iteration, 5);
    EXPECT_EQ(scale->last_overflow, 1);
    EXPECT_EQ(scale->hysteresis, 2);
    EXPECT_EQ(scale->factor, 2);
    EXPECT_EQ(folder.scheduler_steps(), 3);
    EXPECT_EQ(folder.num_skipped(), 2);
  }
}

TEST(SavedProgress, WithoutFp16TheScaleIsAFixedOne) {
  const formats::DeepSpeedFolder folder(checkpoint_fixture("zero2"));
  ASSERT_TRUE(folder.loss_scale().has_value());
  EXPECT_FALSE(folder.loss_scale()->is_dynamic);
  EXPECT_EQ(folder.loss_scale()->scale, 1);
  EXPECT_EQ(folder.scheduler_steps(), std::nullopt);
}

// Two good steps of five: torch doubles after three more, and so do we, who count as DeepSpeed.
TEST(SavedProgress, ReadsTorchsGradScaler) {
  const formats::TorchFile file(checkpoint_fixture("resumable/accelerate_state/scaler.pt"));
  const auto scale = formats::grad_scaler_loss_scale(file.root(), "scaler.pt");
  ASSERT_TRUE(scale.has_value());
  EXPECT_EQ(scale->scale, 1024);
  EXPECT_EQ(scale->iteration - scale->last_overflow, 4);
  EXPECT_EQ(scale->hysteresis, 0);
}

TEST(SavedProgress, ReadsTorchsSchedules) {
  for (const auto* name : {"trainer/scheduler.pt", "accelerate_state/scheduler.bin"}) {
    const formats::TorchFile file(checkpoint_fixture(std::string("resumable/") + name));
    EXPECT_EQ(formats::schedule_steps(file.root(), name), 2) << name;
  }
}

formats::PickleValue text(const char* letters) {
  formats::PickleValue value;
  value.kind = formats::PickleKind::text;
  value.text = letters;
  return value;
}

formats::PickleValue integer(int64_t number) {
  formats::PickleValue value;
  value.kind = formats::PickleKind::integer;
  value.integer = number;
  return value;
}

formats::PickleValue dict_of(const formats::PickleValue& key, const formats::PickleValue& value) {
  formats::PickleValue dict;
  dict.kind = formats::PickleKind::dict;
  dict.pairs = {{&key, &value}};
  return dict;
}

TEST(SavedProgress, NumbersThatCannotBeAreErrors) {
  const formats::PickleValue last = text("last_batch_iteration"), scale = text("scale"), none;
  const formats::PickleValue negative = integer(-2), zero = integer(0);
  EXPECT_EQ(input_error("-", [&] { formats::schedule_steps(dict_of(last, negative), "a.pt"); }),
            "a.pt: its last_batch_iteration is -2, expected a count");
  EXPECT_EQ(input_error("-", [&] { formats::schedule_steps(dict_of(last, none), "a.pt"); }),
            "a.pt: its last_batch_iteration is None, expected a number");
  EXPECT_EQ(
      input_error("-", [&] { formats::grad_scaler_loss_scale(dict_of(scale, zero), "scaler.pt"); }),
      "scaler.pt: its scale is 0, expected a positive number");
}

}  // namespace
}  // namespace fullshard::testing
