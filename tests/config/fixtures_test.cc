// SPDX-License-Identifier: Apache-2.0
#include "tests/config/fixtures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>

#include "fullshard/config/plan.h"

namespace fullshard::config {
namespace {

TEST(ConfigFiles, GoodOnesHaveNoProblem) {
  const FixtureFolder folder("good");
  const auto files = folder.files();
  EXPECT_GE(files.size(), 40u);
  for (const std::string& file : files) {
    const PlanReading reading = read_plan(read_text(file), file);
    EXPECT_TRUE(reading.problems.ok()) << reading.problems.text();
  }
}

// Only files with known oddities get warnings.
TEST(ConfigFiles, GoodOnesWarnOfOddSpellingsAndOfWhatHasNoEffect) {
  const FixtureFolder folder("good");
  std::string warnings;
  for (const std::string& file : folder.files()) {
    for (const Problem& warning : read_plan(read_text(file), file).problems.warnings) {
      warnings += warning.text() + "\n";
    }
  }
  EXPECT_EQ(warnings, read_text("warnings.expected"));
}

TEST(ConfigFiles, BadOnesGiveTheirWholeMessage) {
  const FixtureFolder folder("bad");
  const auto files = folder.files();
  EXPECT_GE(files.size(), 60u);
  for (const std::string& file : files) {
    const PlanReading reading = read_plan(read_text(file), file);
    const auto expected = std::filesystem::path(file).replace_extension(".expected").string();
    EXPECT_FALSE(reading.problems.ok()) << file;
    EXPECT_EQ(reading.problems.text(), read_text(expected)) << file;
  }
}

TEST(ConfigFiles, AllowUnknownOnlyWarns) {
  const FixtureFolder folder("bad");
  const PlanReading reading =
      read_plan(read_text("ds_typo_top.json"), "ds_typo_top.json", {.allow_unknown = true});
  EXPECT_EQ(reading.problems.text(),
            "warning: ds_typo_top.json:3: gradient_clipp1ng: unknown key, ignored; did you mean "
            "'gradient_clipping'?\n");
}

// Promise: under 5 ms. Shown, not asserted: other work may share the cores.
TEST(ConfigFiles, ShowsHowLongAFullFileTakes) {
  const FixtureFolder folder("good");
  const std::string text = read_text("ds_zero3_auto.json");
  constexpr int kTimes = 20;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kTimes; ++i) ASSERT_TRUE(read_plan(text, "a.json").problems.ok());
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  std::cout << "reading and checking a full configuration: " << took.count() / kTimes << " ms\n";
}

}  // namespace
}  // namespace fullshard::config
