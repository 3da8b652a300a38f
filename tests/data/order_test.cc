// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "fullshard/base/error.h"
#include "fullshard/data/dataset.h"
#include "fullshard/data/permutation.h"

namespace fullshard::data {
namespace {

using Numbers = std::vector<int64_t>;

Numbers permuted(int64_t n, uint64_t seed, int64_t epoch) {
  const Permutation permutation(n, seed, epoch);
  Numbers numbers;
  for (int64_t i = 0; i < n; ++i) numbers.push_back(permutation(i));
  return numbers;
}

Numbers range(int64_t begin, int64_t end) {
  Numbers numbers(static_cast<size_t>(end - begin));
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

TEST(Permutation, MeetsEveryNumberOnce) {
  for (const int64_t n : {1, 2, 3, 4, 5, 7, 15, 16, 17, 63, 64, 65, 255, 1000, 4097}) {
    Numbers numbers = permuted(n, 1, 0);
    std::ranges::sort(numbers);
    EXPECT_EQ(numbers, range(0, n)) << n;
  }
}

TEST(Permutation, StaysInHugeRanges) {
  const int64_t n = (int64_t{1} << 40) + 12345;
  const Permutation permutation(n, 3, 4);
  Numbers seen;
  for (int64_t i = n - 1000; i < n; ++i) seen.push_back(permutation(i));
  EXPECT_GE(std::ranges::min(seen), 0);
  EXPECT_LT(std::ranges::max(seen), n);
  std::ranges::sort(seen);
  EXPECT_EQ(std::ranges::adjacent_find(seen), seen.end());
  EXPECT_GT(seen.back() - seen.front(), n / 2);  // neighbours are spread out
}

TEST(Permutation, DiffersByEpochAndSeed) {
  EXPECT_NE(permuted(100, 1, 0), permuted(100, 1, 1));
  EXPECT_NE(permuted(100, 1, 1), permuted(100, 1, 2));
  EXPECT_NE(permuted(100, 1, 2), permuted(100, 1, 3));
  EXPECT_NE(permuted(100, 1, 0), permuted(100, 2, 0));
  EXPECT_EQ(permuted(100, 1, 0), permuted(100, 1, 0));
}

// A change would make resumed runs use examples twice.
TEST(Permutation, KeepsItsValues) {
  EXPECT_EQ(permuted(10, 42, 0), (Numbers{5, 8, 3, 0, 4, 6, 2, 1, 7, 9}));
  EXPECT_EQ(permuted(10, 42, 1), (Numbers{6, 2, 9, 4, 5, 1, 8, 0, 3, 7}));
}

TEST(Permutation, IsCloseToUniform) {
  // Where number 0 of 8 lands over 8000 seeds: 1000 each, standard deviation 30.
  std::vector<int> counts(8);
  for (uint64_t seed = 0; seed < 8000; ++seed) ++counts[Permutation(8, seed, 0)(0)];
  EXPECT_GT(std::ranges::min(counts), 850);
  EXPECT_LT(std::ranges::max(counts), 1150);
}

TEST(ExampleOrder, SequentialBatchesAreConsecutive) {
  const ExampleOrder order(10, 3, Order::sequential, 0);
  EXPECT_EQ(order.batches_per_epoch(), 3);
  EXPECT_EQ(order.examples(0), range(0, 3));
  EXPECT_EQ(order.examples(2), range(6, 9));
  EXPECT_EQ(order.examples(3), range(0, 3));  // example 9 does not fill a batch
  EXPECT_EQ(order.epoch_of(2), 0);
  EXPECT_EQ(order.epoch_of(3), 1);
}

TEST(ExampleOrder, ShuffledEpochsMeetExamplesOnceEach) {
  const ExampleOrder order(12, 4, Order::shuffled, 9);
  Numbers first, second;
  for (int64_t step = 0; step < 3; ++step) {
    for (const int64_t example : order.examples(step)) first.push_back(example);
    for (const int64_t example : order.examples(step + 3)) second.push_back(example);
  }
  EXPECT_NE(first, second);
  std::ranges::sort(first);
  std::ranges::sort(second);
  EXPECT_EQ(first, range(0, 12));
  EXPECT_EQ(second, range(0, 12));
}

// Accumulation step a, rank r takes rows (a R + r) m …
TEST(ExampleOrder, AnySplitIsTheGlobalBatchInOrder) {
  for (const Order kind : {Order::sequential, Order::shuffled}) {
    const ExampleOrder order(100, 12, kind, 5);
    for (const int64_t step : {0, 7, 8, 21}) {
      for (const auto& [accumulation, ranks] : {std::pair{1, 1}, {2, 3}, {3, 2}, {1, 12}, {4, 1}}) {
        Numbers joined;
        for (int a = 0; a < accumulation; ++a) {
          for (int rank = 0; rank < ranks; ++rank) {
            const Numbers part = order.examples(step, a, accumulation, rank, ranks);
            EXPECT_EQ(std::ssize(part), 12 / (accumulation * ranks));
            joined.insert(joined.end(), part.begin(), part.end());
          }
        }
        EXPECT_EQ(joined, order.examples(step));
      }
    }
  }
}

TEST(ExampleOrder, MayKeepTheLastBatchOfAnEpoch) {
  const ExampleOrder order(10, 4, Order::sequential, 0, LastBatch::kept);
  EXPECT_EQ(order.batches_per_epoch(), 3);
  EXPECT_EQ(order.examples(2), (Numbers{8, 9}));
  EXPECT_EQ(order.examples(5), (Numbers{8, 9}));
  EXPECT_EQ(order.epoch_of(3), 1);
  EXPECT_TRUE(order.is_whole(1));
  EXPECT_FALSE(order.is_whole(2));
  EXPECT_TRUE(order.is_whole(3));
  // In the places of a whole batch: the later ones have no examples.
  EXPECT_EQ(order.examples(2, 0, 2, 0, 2), (Numbers{8}));
  EXPECT_EQ(order.examples(2, 0, 2, 1, 2), (Numbers{9}));
  EXPECT_EQ(order.examples(2, 1, 2, 0, 2), Numbers());
  const ExampleOrder whole(8, 4, Order::sequential, 0, LastBatch::kept);
  EXPECT_EQ(whole.batches_per_epoch(), 2);
  const ExampleOrder small(3, 8, Order::shuffled, 1, LastBatch::kept);
  EXPECT_EQ(small.batches_per_epoch(), 1);
  Numbers all = small.examples(7);
  std::ranges::sort(all);
  EXPECT_EQ(all, range(0, 3));
}

// Five steps of four examples are done; the next take other numbers of them.
TEST(ExampleOrder, GoesOnAtTheExampleWhereStepsOfAnotherSizeHaveComeTo) {
  const ExampleOrder before(30, 4, Order::sequential, 0, LastBatch::kept);
  EXPECT_EQ(before.place_of(5), (ExamplePlace{5, 0, 20}));
  EXPECT_EQ(before.place_of(9), (ExamplePlace{9, 1, 4}));
  const ExampleOrder after(30, 6, Order::sequential, 0, LastBatch::kept, before.place_of(5));
  EXPECT_EQ(after.examples(5), range(20, 26));
  EXPECT_EQ(after.examples(6), range(26, 30));  // the rest of the epoch
  EXPECT_FALSE(after.is_whole(6));
  EXPECT_EQ(after.examples(7), range(0, 6));
  EXPECT_EQ(after.epoch_of(7), 1);
  EXPECT_EQ(after.place_of(12), (ExamplePlace{12, 2, 0}));
  const ExampleOrder dropping(30, 6, Order::sequential, 0, LastBatch::dropped, {5, 0, 20});
  EXPECT_EQ(dropping.examples(6), range(0, 6));
}

TEST(ExampleOrder, OfTheSameSizeIsTheSameFromAnyStart) {
  for (const LastBatch last : {LastBatch::kept, LastBatch::dropped}) {
    const ExampleOrder whole(31, 4, Order::shuffled, 3, last);
    for (const int64_t start : {0, 1, 7, 8, 9, 23}) {
      const ExampleOrder resumed(31, 4, Order::shuffled, 3, last, whole.place_of(start));
      for (int64_t step = start; step < start + 20; ++step) {
        EXPECT_EQ(resumed.examples(step), whole.examples(step));
        EXPECT_EQ(resumed.place_of(step), whole.place_of(step));
      }
      for (const double epochs : {1.0, 2.0, 3.5}) {
        if (epochs * 31 < static_cast<double>(start * 4)) continue;
        EXPECT_EQ(resumed.steps_of(epochs), whole.steps_of(epochs)) << start << ' ' << epochs;
      }
    }
  }
}

TEST(ExampleOrder, BeginsTheNextEpochWhereTheDataHasBecomeShorter) {
  const ExampleOrder order(10, 4, Order::sequential, 0, LastBatch::kept, {5, 2, 20});
  EXPECT_EQ(order.examples(5), range(0, 4));
  EXPECT_EQ(order.epoch_of(5), 3);
  EXPECT_EQ(order.steps_of(4), 8);
}

TEST(ExampleOrder, SaysWhenAStepDoesNotFit) {
  const auto message = [](const auto& act) -> std::string {
    try {
      act();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message([] { ExampleOrder(7, 8, Order::shuffled, 0); }),
            "data: there are 7 examples, but one step takes 8; give more data, or a smaller "
            "micro-batch, accumulation or number of ranks");
  EXPECT_EQ(message([] { ExampleOrder(8, 8, Order::shuffled, 0).examples(0, 0, 1, 0, 3); }),
            "data: a step of 8 examples cannot be split evenly over 1 accumulation steps of 3 "
            "ranks");
}

}  // namespace
}  // namespace fullshard::data
