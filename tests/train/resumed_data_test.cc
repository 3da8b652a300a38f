// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/resumed_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fullshard::train {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Progress progress_after(int64_t steps, const ExampleOrder& order) {
  return {.step = steps, .data = DataPosition{.step = steps, .place = data_place(order, steps)}};
}

TEST(ResumedData, SaysWhereTheNextStepBegins) {
  const ExampleOrder order(30, 4, Order::shuffled, 7, LastBatch::kept);
  EXPECT_EQ(
      data_place(order, 9),
      (DataPlace{.epoch = 1, .example = 4, .num_examples = 30, .order = "shuffled", .seed = 7}));
  EXPECT_EQ(data_start(progress_after(9, order)), (ExamplePlace{9, 1, 4}));
}

// As older checkpoints, and those of other programs.
TEST(ResumedData, IsCountedInStepsWhereNothingIsSaid) {
  EXPECT_EQ(data_start({.step = 9}), ExamplePlace{});
  EXPECT_EQ(data_start({.step = 9, .data = DataPosition{.step = 9}}), ExamplePlace{});
  EXPECT_THAT(changes_of_data({.step = 9}, ExampleOrder(3, 1, Order::shuffled, 7)), IsEmpty());
}

TEST(ResumedData, NamesWhatIsAnother) {
  const auto progress = progress_after(9, ExampleOrder(30, 4, Order::shuffled, 7));
  EXPECT_THAT(changes_of_data(progress, ExampleOrder(30, 6, Order::shuffled, 7)), IsEmpty());
  EXPECT_THAT(
      changes_of_data(progress, ExampleOrder(31, 4, Order::sequential, 8)),
      ElementsAre("--seed: is 8, but the 9 steps before were trained with 7; from here on "
                  "other examples come than without the interruption",
                  "--order: is sequential, but the 9 steps before were trained with "
                  "shuffled; from here on other examples come than without the interruption",
                  "--data: number of examples: is 31, but the 9 steps before were trained "
                  "with 30; from here on other examples come than without the "
                  "interruption"));
}

TEST(ResumedData, NamesAMixtureThatIsAnother) {
  const ExampleOrder order(30, 4, Order::shuffled, 7);
  Progress progress{.step = 9, .data = DataPosition{.step = 9}};
  const auto changes = [&](const std::string& mixture) {
    return changes_of_data(progress, order, mixture);
  };
  progress.data->place = data_place(order, 9, "0.7 of 20, 0.3 of 10");
  EXPECT_THAT(changes("0.7 of 20, 0.3 of 10"), IsEmpty());
  EXPECT_THAT(changes("0.3 of 10, 0.7 of 20"),
              ElementsAre("--data: shares: is 0.3 of 10, 0.7 of 20, but the 9 steps before were "
                          "trained with 0.7 of 20, 0.3 of 10; from here on other examples come "
                          "than without the interruption"));
  EXPECT_THAT(changes(""), ElementsAre(::testing::StartsWith("--data: shares: is one data set, ")));
  // Of two data sets of one size each keeps its identity; older checkpoints do not say it.
  EXPECT_THAT(changes("0.7 of 20 (1f3c9a02), 0.3 of 10 (00c4d5e6)"), IsEmpty());
  progress.data->place = data_place(order, 9, "0.5 of 20 (1f3c9a02), 0.5 of 20 (00c4d5e6)");
  EXPECT_THAT(changes("0.5 of 20 (1f3c9a02), 0.5 of 20 (00c4d5e6)"), IsEmpty());
  EXPECT_THAT(changes("0.5 of 20 (00c4d5e6), 0.5 of 20 (1f3c9a02)"),
              ElementsAre(::testing::StartsWith(
                  "--data: shares: is 0.5 of 20 (00c4d5e6), 0.5 of 20 (1f3c9a02), but the 9 ")));
  progress.data->place = data_place(order, 9, "");
  EXPECT_THAT(changes(""), IsEmpty());
  EXPECT_THAT(changes("1 of 30"), ElementsAre(::testing::HasSubstr("trained with one data set;")));
  // Older checkpoints do not say it.
  progress.data->place = data_place(order, 9);
  EXPECT_THAT(changes("1 of 30"), IsEmpty());
}

}  // namespace
}  // namespace fullshard::train
