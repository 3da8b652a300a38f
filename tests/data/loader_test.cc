// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/data/open_data.h"
#include "tests/data/data_files.h"
#include "tests/data/toy_tokenizer.h"

namespace fullshard::data {
namespace {

using Ids = std::vector<int64_t>;

// A batch holds its examples' numbers and its epoch; one example may be broken.
class NumberedData final : public Dataset {
 public:
  explicit NumberedData(int64_t size, int64_t broken = -1) : size_(size), broken_(broken) {}
  int64_t size() const override { return size_; }
  TokenBatch batch(std::span<const int64_t> examples, uint64_t seed, int64_t epoch) const override {
    ++num_made;
    TokenBatch batch{.rows = std::ssize(examples), .columns = 1};
    batch.input_ids.assign(examples.begin(), examples.end());
    batch.labels = {static_cast<int64_t>(seed), epoch};
    for (const int64_t example : examples)
      check(example != broken_, "example {} is broken", example);
    return batch;
  }
  int64_t max_token() const override { return size_ - 1; }
  std::string describe() const override { return "numbers"; }
  mutable std::atomic<int> num_made = 0;

 private:
  int64_t size_;
  int64_t broken_;
};

TEST(Loader, GivesThisRanksMicroBatchesInOrder) {
  const NumberedData data(17);
  const ExampleOrder order(17, 8, Order::sequential, 0);
  Loader loader(data, order, {.seed = 5, .num_accumulation = 2, .rank = 1, .num_ranks = 2});
  EXPECT_EQ(loader.next().input_ids, (Ids{2, 3}));
  EXPECT_EQ(loader.step(), 0);
  EXPECT_EQ(loader.accumulation_step(), 1);
  EXPECT_EQ(loader.next().input_ids, (Ids{6, 7}));
  EXPECT_EQ(loader.next().input_ids, (Ids{10, 11}));
  EXPECT_EQ(loader.next().labels, (Ids{5, 0}));
  const TokenBatch next_epoch = loader.next();
  EXPECT_EQ(next_epoch.input_ids, (Ids{2, 3}));
  EXPECT_EQ(next_epoch.labels, (Ids{5, 1}));
}

TEST(Loader, ResumesAtAnyStep) {
  const NumberedData data(100);
  const ExampleOrder order(100, 6, Order::shuffled, 3);
  const LoaderOptions options{.num_accumulation = 3, .rank = 0, .num_ranks = 2};
  std::vector<Ids> whole;
  Loader from_start(data, order, options);
  for (int i = 0; i < 40 * 3; ++i) whole.push_back(from_start.next().input_ids);
  for (const int64_t step : {0, 1, 15, 16, 17, 39}) {
    Loader resumed(data, order, options, step);
    from_start.seek(step);
    EXPECT_EQ(from_start.step(), step);
    for (int64_t i = step * 3; i < 40 * 3; ++i) {
      EXPECT_EQ(resumed.next().input_ids, whole[static_cast<size_t>(i)]);
      EXPECT_EQ(from_start.next().input_ids, whole[static_cast<size_t>(i)]);
    }
  }
}

// A set whose batches are made one at a time, as the test allows.
class Gated final : public Dataset {
 public:
  int64_t size() const override { return 1000; }
  TokenBatch batch(std::span<const int64_t> examples, uint64_t, int64_t) const override {
    std::unique_lock lock(mutex_);
    begun_.push_back(examples.front());
    changed_.notify_all();
    changed_.wait(lock, [&] { return num_allowed_ > 0; });
    --num_allowed_;
    TokenBatch batch{.rows = std::ssize(examples), .columns = 1};
    batch.input_ids.assign(examples.begin(), examples.end());
    return batch;
  }
  int64_t max_token() const override { return 999; }
  std::string describe() const override { return "gated"; }

  void allow(int batches) {
    const std::lock_guard lock(mutex_);
    num_allowed_ += batches;
    changed_.notify_all();
  }
  // Waits until this many were begun, and returns their first examples.
  Ids begun(size_t count) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_.size() >= count; });
    return begun_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable Ids begun_;
  mutable int num_allowed_ = 0;
};

// Begun before the seek and finished after it: it belongs to a step that is no longer requested.
TEST(Loader, DropsTheBatchThatIsBeingMadeWhenItSeeks) {
  Gated data;
  Loader loader(data, ExampleOrder(1000, 1, Order::sequential, 0), {.num_ahead = 2});
  ASSERT_EQ(data.begun(1), (Ids{0}));
  loader.seek(500);
  data.allow(1);  // the batch of step 0 is made now
  ASSERT_EQ(data.begun(2), (Ids{0, 500}));
  data.allow(3);
  EXPECT_EQ(loader.next().input_ids, (Ids{500}));
  EXPECT_EQ(loader.next().input_ids, (Ids{501}));
  data.allow(100);  // the batches ahead when the loader ends
}

// Made before the seek and waiting to be taken.
TEST(Loader, DropsTheBatchesThatAreReadyWhenItSeeks) {
  Gated data;
  Loader loader(data, ExampleOrder(1000, 1, Order::sequential, 0), {.num_ahead = 2});
  data.allow(1);
  ASSERT_EQ(data.begun(2), (Ids{0, 1}));  // 0 is ready then, and 1 is being made
  loader.seek(500);
  data.allow(100);
  EXPECT_EQ(loader.next().input_ids, (Ids{500}));
  EXPECT_EQ(loader.next().input_ids, (Ids{501}));
  loader.seek(3);
  EXPECT_EQ(loader.step(), 3);
  EXPECT_EQ(loader.next().input_ids, (Ids{3}));
}

// Masked tokens are the hard case: they are random.
TEST(Loader, AnyNumberOfRanksSeesTheSameGlobalBatches) {
  const testing::DataFolder folder;
  const testing::ToyTokenizer tokenizer;
  const auto data = open_data({.paths = {folder.write("a.txt", std::string(700, 'x'))},
                               .task = Task::masked_lm,
                               .sequence_length = 12,
                               .mask_probability = 0.5},
                              &tokenizer);
  const ExampleOrder order(data->size(), 12, Order::shuffled, 8);
  const auto global_batches = [&](int num_ranks, int64_t num_accumulation) {
    std::vector<std::unique_ptr<Loader>> loaders;
    for (int rank = 0; rank < num_ranks; ++rank) {
      const LoaderOptions options{
          .seed = 8, .num_accumulation = num_accumulation, .rank = rank, .num_ranks = num_ranks};
      loaders.push_back(std::make_unique<Loader>(*data, order, options));
    }
    Ids ids;
    for (int64_t i = 0; i < 10 * num_accumulation; ++i) {
      for (const auto& loader : loaders) {
        const TokenBatch batch = loader->next();
        ids.insert(ids.end(), batch.input_ids.begin(), batch.input_ids.end());
      }
    }
    return ids;
  };
  const Ids expected = global_batches(1, 1);
  EXPECT_EQ(expected.size(), 10u * 12 * 12);
  for (const auto& [ranks, accumulation] : {std::pair{2, 1}, {3, 1}, {2, 3}, {1, 4}, {4, 3}}) {
    EXPECT_EQ(global_batches(ranks, accumulation), expected) << ranks << ' ' << accumulation;
  }
}

TEST(Loader, ErrorsComeOutWhereTheirBatchWould) {
  const NumberedData data(100, 13);
  Loader loader(data, ExampleOrder(100, 4, Order::sequential, 0), {.num_ahead = 8});
  for (int64_t step = 0; step < 3; ++step) EXPECT_EQ(loader.next().input_ids[0], 4 * step);
  for (int i = 0; i < 2; ++i) {
    try {
      loader.next();
      ADD_FAILURE() << "no Error was thrown";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "example 13 is broken");
    }
  }
  loader.seek(4);
  EXPECT_EQ(loader.next().input_ids, (Ids{16, 17, 18, 19}));
}

TEST(Loader, IsNeverFurtherAheadThanAsked) {
  const NumberedData data(1000);
  {
    Loader loader(data, ExampleOrder(1000, 1, Order::sequential, 0), {.num_ahead = 3});
    for (int i = 0; i < 10; ++i) loader.next();
    EXPECT_LE(data.num_made, 10 + 3);
  }
  EXPECT_LE(data.num_made, 10 + 3 + 1);
}

TEST(Loader, SaysWhatCannotBeSplit) {
  const NumberedData data(100);
  Loader loader(data, ExampleOrder(100, 4, Order::sequential, 0), {.num_ranks = 3});
  EXPECT_THROW(loader.next(), Error);
}

}  // namespace
}  // namespace fullshard::data
