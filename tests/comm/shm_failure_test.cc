// SPDX-License-Identifier: Apache-2.0
// What the others are told when a rank of the shm backend is not where it should be. Ranks are
// threads here; shm_process_test.cc kills processes.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <latch>

#include "shm_ranks.h"

namespace fullshard::comm {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Long enough for threads that run already to come to the same call on a busy machine.
Timeouts short_timeout() {
  Timeouts timeouts;
  timeouts.step = std::chrono::seconds(1);
  return timeouts;
}

TEST(ShmFailure, BothSidesOfADisagreementAreTold) {
  const auto errors = errors_of_ranks(2, [](const ShmTestRank& self) {
    self.world.barrier();
    if (self.rank == 0) {
      self.world.reduce_scatter(at::zeros({128}), at::zeros({256}), {}, "a").wait();
    } else {
      self.world.all_gather(at::zeros({128}), at::zeros({64}), "b").wait();
    }
  });
  for (const auto& error : errors) {
    EXPECT_EQ(error,
              "ranks disagree at sequence 2 of group world: rank 0 calls reduce_scatter of a "
              "(1024 bytes), rank 1 calls all_gather of b (512 bytes); all ranks must make "
              "the same calls in the same order");
  }
}

// Rank 0 knows of one that is missing on another host, and fails for that reason.
TEST(ShmFailure, ARankThatFailsBecauseOfAnotherHostIsNotBlamedByItsNeighbours) {
  const auto errors = errors_of_ranks(3, [](const ShmTestRank& self) {
    if (self.rank == 0) {
      self.domain.ask_outside([] {
        return std::optional(Missing{7, "cannot be reached", "its last act: none yet", "see it"});
      });
      fail("a call over the network failed");
    }
    self.world.barrier("block 1");
  });
  EXPECT_EQ(errors[0], "a call over the network failed");
  for (const int rank : {1, 2}) {
    EXPECT_EQ(errors[static_cast<size_t>(rank)],
              fmt::format("rank {}: barrier of block 1 (group world, sequence 1) waits for rank 7, "
                          "which cannot be reached; its last act: none yet; see it",
                          rank));
  }
}

TEST(ShmFailure, ADisagreementThatSizesDoNotShowIsSpeltOut) {
  const auto errors = errors_of_ranks(2, [](const ShmTestRank& self) {
    const auto op = self.rank == 0 ? ReduceOp::sum : ReduceOp::max;
    self.world.all_reduce(at::zeros({4}), op).wait();
  });
  for (const auto& error : errors) {
    EXPECT_THAT(error, HasSubstr("rank 0 calls all_reduce (16 bytes of Float, sum in 1 slices"));
    EXPECT_THAT(error, HasSubstr("rank 1 calls all_reduce (16 bytes of Float, max in 1 slices"));
  }
}

TEST(ShmFailure, ARankThatAgreesHearsOfADisagreementToo) {
  const auto errors = errors_of_ranks(3, [](const ShmTestRank& self) {
    self.world.all_reduce(at::zeros({self.rank == 2 ? 5 : 4})).wait();
  });
  for (const auto& error : errors) {
    EXPECT_THAT(error, StartsWith("ranks disagree at sequence 1 of group world: rank "));
    EXPECT_THAT(error, HasSubstr("rank 2 calls all_reduce (20 bytes)"));
  }
}

TEST(ShmFailure, ARankThatHasLeftIsNamed) {
  const auto errors = errors_of_ranks(2, [](const ShmTestRank& self) {
    self.world.all_reduce(at::zeros({4}), ReduceOp::sum, "blocks.2").wait();
    if (self.rank == 0) self.world.all_gather(at::zeros({4}), at::zeros({2}), "blocks.3").wait();
  });
  EXPECT_EQ(errors[0],
            "rank 0: all_gather of blocks.3 (group world, sequence 2) waits for rank 1, which "
            "has left; its last act: all_reduce of blocks.2 (sequence 1), finished; all ranks "
            "must make the same calls");
  EXPECT_EQ(errors[1], "");
}

TEST(ShmFailure, EveryRankBlamesTheOneThatFailedFirst) {
  const auto errors = errors_of_ranks(4, [](const ShmTestRank& self) {
    self.world.barrier("start");
    check(self.rank != 2, "the disk is full");
    self.world.all_reduce(at::zeros({5000}), ReduceOp::sum, "head").wait();
  });
  EXPECT_EQ(errors[2], "the disk is full");
  for (const int rank : {0, 1, 3}) {
    EXPECT_EQ(errors[rank],
              fmt::format("rank {}: all_reduce of head (group world, sequence 2) waits for "
                          "rank 2, which failed: the disk is full; its last act: barrier of start "
                          "(sequence 1), finished; see rank 2's log",
                          rank));
  }
}

TEST(ShmFailure, WorkThatIsDoneIsNotLostWhenItsRankLeaves) {
  run_shm_ranks(2, [](const ShmTestRank& self) {
    const auto tensor = at::ones({4});
    self.world.all_reduce(tensor).wait();
    EXPECT_EQ(tensor.sum().item<float>(), 8);
  });
}

TEST(ShmFailure, ALateRankIsNamedAfterTheStepTimeout) {
  std::promise<void> told;
  std::latch running(2);
  const auto errors = errors_of_ranks(
      2,
      [&](const ShmTestRank& self) {
        running.arrive_and_wait();
        self.world.barrier();
        if (self.rank == 1) return told.get_future().wait();
        try {
          self.world.broadcast(at::zeros({4}), 0, "head").wait();
        } catch (const Error&) {
          told.set_value();
          throw;
        }
      },
      short_timeout());
  EXPECT_THAT(errors[0], StartsWith("rank 0: broadcast of head (group world, sequence 2) "
                                    "waits for rank 1, which has not come for 1"));
  EXPECT_THAT(errors[0],
              EndsWith(" s (step timeout); its last act: barrier (sequence 1), finished; "
                       "raise timeouts.step (--step-timeout) if it is only slow"));
}

TEST(ShmFailure, TheRankAtTheEndOfAChainOfWaitingIsLate) {
  std::promise<void> told;
  const auto late = told.get_future().share();
  std::atomic<int> failed = 0;
  std::latch running(2);
  const auto errors = errors_of_ranks(
      4,
      [&](const ShmTestRank& self) {
        const auto rows = self.split({{0, 1}, {2, 3}}, "rows");
        const auto columns = self.split({{0, 2}, {1, 3}}, "columns");
        if (self.rank >= 2) return late.wait();
        running.arrive_and_wait();
        try {
          // Rank 0 waits for rank 1, which waits for rank 3.
          (self.rank == 0 ? rows : columns).barrier();
        } catch (const Error&) {
          if (++failed == 2) told.set_value();
          late.wait();  // who left would be blamed by the other
          throw;
        }
      },
      short_timeout());
  EXPECT_THAT(errors[0], StartsWith("rank 0: barrier (group rows, sequence 1) waits for rank 3, "
                                    "which has not come for 1"));
  EXPECT_THAT(errors[1], StartsWith("rank 1: barrier (group columns, sequence 1) waits for rank 3, "
                                    "which has not come for 1"));
  EXPECT_THAT(errors[0], HasSubstr("it has made no call yet"));
}

TEST(ShmFailure, ALateRankThatComesIsToldThatItWasGivenUp) {
  std::promise<void> told;
  const auto errors = errors_of_ranks(
      2,
      [&](const ShmTestRank& self) {
        if (self.rank == 1) told.get_future().wait();
        try {
          self.world.barrier();
        } catch (const Error&) {
          if (self.rank == 0) told.set_value();
          throw;
        }
        self.world.barrier();
      },
      short_timeout());
  EXPECT_THAT(errors[1], StartsWith("rank 1: barrier (group world, sequence 2) comes too late: the "
                                    "other ranks have given this one up after 1"));
}

TEST(ShmCounters, CarryWhatWasWrittenBeforeAndNeverFall) {
  run_shm_ranks(3, [](const ShmTestRank& self) {
    const auto counters = self.world.make_counters(2);
    const auto common = self.world.allocate_common(3, at::kLong);
    auto* values = common.data_ptr<int64_t>();
    for (uint64_t round = 1; round <= 500; ++round) {
      values[self.rank] = static_cast<int64_t>(round);
      counters->publish(0, round);
      counters->wait_for_all(0, round, "share", "blocks.1");
      for (int rank = 0; rank < 3; ++rank) ASSERT_EQ(values[rank], static_cast<int64_t>(round));
      counters->publish(1, round);
      counters->wait_for_all(1, round, "share", "blocks.1");
    }
    counters->publish(0, 7);
    EXPECT_EQ(counters->value(0, self.rank), 500);
    self.world.barrier();
  });
}

TEST(ShmCounters, NameTheRankThatIsGone) {
  const auto errors = errors_of_ranks(2, [](const ShmTestRank& self) {
    const auto counters = self.world.make_counters(1);
    self.world.barrier();
    check(self.rank == 0, "no more memory");
    counters->publish(0, 1);
    counters->wait_for_all(0, 1, "share", "blocks.7");
  });
  EXPECT_EQ(errors[0],
            "rank 0: share of blocks.7 (group world) waits for rank 1, which failed: no more "
            "memory; its last act: barrier (sequence 1), finished; see rank 1's log");
}

TEST(ShmCounters, DoTheirPartOfCallsWhileTheyWait) {
  run_shm_ranks(2, [](const ShmTestRank& self) {
    const auto counters = self.world.make_counters(1);
    const auto tensor = self.world.allocate(5000, at::kFloat).fill_(1);
    auto work = self.world.all_reduce(tensor);
    if (self.rank == 0) {
      work.wait();  // needs rank 1, which waits for the counter
      counters->publish(0, 1);
    } else {
      counters->publish(0, 1);
      counters->wait_for_all(0, 1, "share", "");
      work.wait();
    }
    EXPECT_TRUE(tensor.eq(2).all().item<bool>());
  });
}

}  // namespace
}  // namespace fullshard::comm
