// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/epoch_vote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/comm/world/world.h"

namespace fullshard::train {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(EpochVote, EndsForAllWithTheShortestRank) {
  const std::vector<std::vector<int64_t>> batches_of = {{3}, {5, 2}, {4, 4, 6}, {3, 1, 0, 2}};
  for (const auto& batches : batches_of) {
    const auto shortest = *std::min_element(batches.begin(), batches.end());
    run_ranks({.ranks = static_cast<int>(batches.size())}, [&](const World& world) {
      EpochVote vote(world.communicator());
      for (int epoch = 0; epoch < 2; ++epoch) {
        int64_t left = batches[world.rank()], num_trained = 0;
        for (; vote.all_have_data(left); --left) ++num_trained;
        EXPECT_EQ(num_trained, shortest);
        std::vector<int64_t> dropped;
        for (const auto batch : batches) dropped.push_back(batch - shortest);
        EXPECT_EQ(vote.dropped(), dropped) << "rank " << world.rank();
      }
    });
  }
}

TEST(EpochVote, CountsOneBatchWhereALoaderOnlyKnowsThatThereIsAnother) {
  run_ranks({.ranks = 3}, [](const World& world) {
    EpochVote vote(world.communicator());
    EXPECT_TRUE(vote.all_have_data(true));
    EXPECT_THAT(vote.dropped(), IsEmpty());
    EXPECT_EQ(vote.num_dropped(), 0);
    EXPECT_FALSE(vote.all_have_data(world.rank() != 1));
    EXPECT_THAT(vote.dropped(), ElementsAre(1, 0, 1));
    EXPECT_EQ(vote.num_dropped(), 2);
  });
}

TEST(EpochVote, SaysWhatWasDroppedAndWhy) {
  run_ranks({.ranks = 4}, [](const World& world) {
    EpochVote vote(world.communicator());
    EXPECT_EQ(vote.describe_dropped(), "");
    vote.all_have_data(std::vector<int64_t>{1, 0, 2, 0}[world.rank()]);
    EXPECT_EQ(vote.describe_dropped(),
              "3 micro-batches were dropped (rank 0: 1, rank 2: 2) when ranks 1, 3 ran out of "
              "data");
    vote.all_have_data(std::vector<int64_t>{1, 1, 1, 0}[world.rank()]);
    EXPECT_EQ(vote.num_dropped(), 3);
    vote.all_have_data(world.rank() == 2);
    EXPECT_EQ(vote.describe_dropped(),
              "1 micro-batch was dropped (rank 2: 1) when ranks 0, 1, 3 ran out of data");
    vote.all_have_data(false);
    EXPECT_EQ(vote.describe_dropped(), "");
  });
}

TEST(EpochVote, MakesOneCollectivePerVote) {
  const auto world = World::fake(1000);
  EpochVote vote(world.communicator());
  const auto before = world.recorder().records().size();
  EXPECT_TRUE(vote.all_have_data(4));
  EXPECT_FALSE(vote.all_have_data(0));
  EXPECT_EQ(world.recorder().records().size() - before, 2);
  EXPECT_EQ(vote.num_dropped(), 0);
}

TEST(EpochVote, RefusesANegativeNumberOnEveryRank) {
  run_ranks({.ranks = 2}, [](const World& world) {
    EpochVote vote(world.communicator());
    try {
      vote.all_have_data(world.rank() == 1 ? -1 : 5);
      ADD_FAILURE() << "no Error was thrown";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(),
                   "epoch vote: rank 1 has -1 micro-batches left, expected 0 or more");
    }
  });
}

}  // namespace
}  // namespace fullshard::train
