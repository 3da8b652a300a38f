// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/small_tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <vector>

namespace fullshard::data {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The correct answer of a line, computed in another way than by the generator.
std::string answer_to(const std::string& question) {
  int left = 0, right = 0;
  if (std::sscanf(question.c_str(), "%d+%d", &left, &right) == 2) {
    return std::to_string(left + right);
  }
  std::string word = question.substr(question.find(' ') + 1);
  if (question.starts_with("reverse ")) std::ranges::reverse(word);
  if (question.starts_with("sort ")) std::ranges::sort(word);
  if (std::sscanf(question.c_str(), "count %d %d", &left, &right) == 2) {
    word = std::to_string(left);
    for (int number = left + 1; number <= right; ++number) word += " " + std::to_string(number);
  }
  return word;
}

TEST(SmallTasks, EveryAnswerIsRight) {
  std::map<std::string, int> kinds;
  for (const std::string& line : lines_of(make_small_tasks(TaskMix::mixed, 2000, 1))) {
    const size_t equals = line.find('=');
    ASSERT_NE(equals, std::string::npos) << line;
    const std::string question = line.substr(0, equals);
    EXPECT_EQ(line.substr(equals + 1), answer_to(question));
    ++kinds[question.find(' ') == std::string::npos ? "sum"
                                                    : question.substr(0, question.find(' '))];
  }
  EXPECT_EQ(kinds.size(), 5u);
  EXPECT_NEAR(kinds["sum"], 1000, 100);
  for (const char* kind : {"reverse", "count", "copy", "sort"}) EXPECT_NEAR(kinds[kind], 250, 60);
}

TEST(SmallTasks, HeldOutSumsAppearInNoCorpus) {
  std::set<std::string> trained;
  for (const TaskMix mix : {TaskMix::sums, TaskMix::mixed}) {
    for (const uint64_t seed : {1, 2}) {
      for (const auto& line : lines_of(make_small_tasks(mix, 20'000, seed))) trained.insert(line);
    }
  }
  const auto held_out = lines_of(make_held_out_sums(TaskMix::sums, 100'000, 3));
  EXPECT_NEAR(static_cast<double>(held_out.size()), 1000, 150);
  EXPECT_EQ(std::set(held_out.begin(), held_out.end()).size(), held_out.size());
  for (const std::string& line : held_out) {
    int left = 0, right = 0, sum = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "%d+%d=%d", &left, &right, &sum), 3);
    EXPECT_EQ(left + right, sum);
    EXPECT_FALSE(trained.contains(line));
    EXPECT_EQ(is_held_out_sum(left, right), is_held_out_sum(right, left));
  }
  EXPECT_EQ(lines_of(make_held_out_sums(TaskMix::sums, 50, 3)),
            std::vector(held_out.begin(), held_out.begin() + 50));
}

TEST(SmallTasks, HeldOutSumsOfDigitsAppearInNoCorpusInAnyOrder) {
  std::set<std::array<int, 4>> trained;
  const auto digits_in = [](const std::string& line) {
    std::array<int, 4> digits = {};
    int sum = 0;
    EXPECT_EQ(std::sscanf(line.c_str(), "%1d+%1d+%1d+%1d=%2d", &digits[0], &digits[1], &digits[2],
                          &digits[3], &sum),
              5)
        << line;
    EXPECT_EQ(std::accumulate(digits.begin(), digits.end(), 0), sum) << line;
    EXPECT_EQ(line.size(), 10u);
    std::ranges::sort(digits);
    return digits;
  };
  for (const auto& line : lines_of(make_small_tasks(TaskMix::digits, 20'000, 1))) {
    trained.insert(digits_in(line));
  }
  const auto held_out = lines_of(make_held_out_sums(TaskMix::digits, 100'000, 3));
  EXPECT_NEAR(static_cast<double>(held_out.size()), 1000, 300);
  for (const std::string& line : held_out) EXPECT_FALSE(trained.contains(digits_in(line))) << line;
}

TEST(SmallTasks, ALineDependsOnSeedAndNumberOnly) {
  const std::string few = make_small_tasks(TaskMix::sums, 10, 4);
  EXPECT_TRUE(make_small_tasks(TaskMix::sums, 20, 4).starts_with(few));
  EXPECT_NE(make_small_tasks(TaskMix::sums, 10, 5), few);
}

}  // namespace
}  // namespace fullshard::data
