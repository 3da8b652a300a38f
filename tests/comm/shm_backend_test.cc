// SPDX-License-Identifier: Apache-2.0
// Every collective of the shm backend, on ranks that are threads.
#include "fullshard/comm/shm/shm_backend.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "shm_ranks.h"

namespace fullshard::comm {
namespace {

// Elements of 4 bytes: inline, staged and odd, with a tail behind every vector width. 2, 3 and 4
// ranks that share 6145 out get a multiple of 64 each, and one is left over.
constexpr int64_t kSizes[] = {1, 3, 700, 5003, 6145, 70001};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto left = a.contiguous(), right = b.contiguous();
  return left.nbytes() == right.nbytes() &&
         std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
}

at::Tensor values_of(int rank, int64_t numel, at::ScalarType dtype = at::kFloat) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(100 + rank);
  const auto values = at::randn({numel}, generator, at::TensorOptions(at::kDouble));
  return (values * 1000).to(dtype);
}

at::Tensor filled(const Communicator& world, bool in_arena, const at::Tensor& values) {
  if (!in_arena) return values.clone();
  auto tensor = world.allocate(values.numel(), values.scalar_type());
  return tensor.copy_(values);
}

at::Tensor sum_of_all(int size, int64_t numel, at::ScalarType dtype = at::kFloat) {
  at::Tensor sum = values_of(0, numel, dtype);
  for (int rank = 1; rank < size; ++rank) sum = sum + values_of(rank, numel, dtype);
  return sum;
}

class ShmWorlds : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ShmWorlds, ::testing::Values(1, 2, 3, 4));

TEST_P(ShmWorlds, GatherPutsEveryShardIntoItsRow) {
  run_shm_ranks(GetParam(), [](const ShmTestRank& self) {
    for (const int64_t numel : kSizes) {
      for (const bool in_arena : {false, true}) {
        const auto shard = filled(self.world, in_arena, values_of(self.rank, numel));
        const auto full = filled(self.world, in_arena, at::zeros({numel * self.size}));
        self.world.all_gather(full, shard, "unit").wait();
        for (int rank = 0; rank < self.size; ++rank) {
          const auto row = full.slice(0, rank * numel, (rank + 1) * numel);
          EXPECT_TRUE(same_bits(row, values_of(rank, numel))) << numel << " " << rank;
        }
      }
    }
  });
}

TEST_P(ShmWorlds, GatherWorksInPlaceAndIntoAWindow) {
  run_shm_ranks(GetParam(), [](const ShmTestRank& self) {
    for (const int64_t numel : kSizes) {
      const int64_t stride = numel + 5;
      const auto buffer = self.world.allocate(self.size * stride, at::kFloat).fill_(-1);
      const auto window = buffer.view({self.size, stride}).slice(1, 2, 2 + numel);
      window[self.rank].copy_(values_of(self.rank, numel));
      self.world.all_gather(window, window[self.rank]).wait();
      for (int rank = 0; rank < self.size; ++rank) {
        EXPECT_TRUE(same_bits(window[rank], values_of(rank, numel)));
      }
      const auto rows = buffer.view({self.size, stride});
      EXPECT_TRUE((rows.slice(1, 0, 2) == -1).all().item<bool>());
      EXPECT_TRUE((rows.slice(1, 2 + numel) == -1).all().item<bool>());
    }
  });
}

TEST_P(ShmWorlds, GatherMovesBitsOfAnyDtype) {
  run_shm_ranks(GetParam(), [](const ShmTestRank& self) {
    for (const auto dtype : {at::kByte, at::kBool, at::kBFloat16, at::kDouble, at::kLong}) {
      const auto shard = at::full({9}, self.rank + 1, dtype);
      const auto full = at::zeros({9 * self.size}, dtype);
      self.world.all_gather(full, shard).wait();
      for (int rank = 0; rank < self.size; ++rank) {
        EXPECT_TRUE(
            same_bits(full.slice(0, 9 * rank, 9 * rank + 9), at::full({9}, rank + 1, dtype)));
      }
    }
  });
}

TEST_P(ShmWorlds, AllToAllGivesEachRankItsRowOfTheOthers) {
  run_shm_ranks(GetParam(), [](const ShmTestRank& rank) {
    const int64_t size = rank.size;
    for (const int64_t numel : {0, 1, 5, 70000}) {
      const auto sent = at::arange(size * numel, at::kInt) + 1000000 * rank.rank;
      const auto received = at::full({size, numel}, -1, at::kInt);
      rank.world.all_to_all(received, sent, "rows").wait();
      for (int64_t peer = 0; peer < size; ++peer) {
        const auto expected = at::arange(numel, at::kInt) + rank.rank * numel + 1000000 * peer;
        EXPECT_TRUE(received[peer].equal(expected)) << rank.rank << " from " << peer;
      }
    }
  });
}

TEST_P(ShmWorlds, ReduceScatterSumsInRankOrder) {
  run_shm_ranks(GetParam(), [](const ShmTestRank& self) {
    for (const int64_t numel : kSizes) {
      for (const bool in_arena : {false, true}) {
        const int64_t total = numel * self.size;
        const auto full = filled(self.world, in_arena, values_of(self.rank, total));
        const auto shard = filled(self.world, in_arena, at::zeros({numel}));
        self.world.reduce_scatter(shard, full, {.op = ReduceOp::sum}).wait();
        const auto sum = sum_of_all(self.size, total);
        const auto own = sum.slice(0, self.rank * numel, (self.rank + 1) * numel);
        EXPECT_TRUE(same_bits(shard, own)) << numel;
        EXPECT_TRUE(same_bits(full, values_of(self.rank, total)));
      }
    }
  });
}

TEST_P(ShmWorlds, ReduceScatterWorksInPlace) {
  run_shm_ranks(GetParam(), [](const ShmTestRank& self) {
    for (const int64_t numel : kSizes) {
      for (const bool in_arena : {false, true}) {
        const int64_t total = numel * self.size;
        const auto full = filled(self.world, in_arena, values_of(self.rank, total));
        const auto shard = full.slice(0, self.rank * numel, (self.rank + 1) * numel);
        self.world.reduce_scatter(shard, full, {.op = ReduceOp::average}).wait();
        const auto average = sum_of_all(self.size, total) * static_cast<float>(1.0 / self.size);
        const auto own = average.slice(0, self.rank * numel, (self.rank + 1) * numel);
        EXPECT_TRUE(same_bits(shard, own)) << numel;
      }
    }
  });
}

TEST_P(ShmWorlds, ReduceScatterReadsAWindowAndAccumulatesIntoAnotherDtype) {
  run_shm_ranks(GetParam(), [](const ShmTestRank& self) {
    for (const int64_t numel : kSizes) {
      const int64_t stride = numel + 3;
      const auto values = values_of(self.rank, self.size * stride, at::kBFloat16);
      const auto buffer = filled(self.world, true, values);
      const auto window = buffer.view({self.size, stride}).slice(1, 1, 1 + numel);
      const auto shard = self.world.allocate(numel, at::kFloat).fill_(0.5);
      self.world.reduce_scatter(shard, window, {.op = ReduceOp::sum, .accumulate = true}).wait();
      at::Tensor sum = values_of(0, self.size * stride, at::kBFloat16).to(at::kFloat);
      for (int rank = 1; rank < self.size; ++rank) {
        sum = sum + values_of(rank, self.size * stride, at::kBFloat16).to(at::kFloat);
      }
      const auto own = sum.view({self.size, stride})[self.rank].slice(0, 1, 1 + numel);
      EXPECT_TRUE(same_bits(shard, 0.5 + own)) << numel;
    }
  });
}

TEST_P(ShmWorlds, AllReduceGivesEveryRankTheSameBitsInEveryDtype) {
  run_shm_ranks(GetParam(), [](const ShmTestRank& self) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong}) {
      for (const int64_t numel : kSizes) {
        for (const bool in_arena : {false, true}) {
          const auto tensor = filled(self.world, in_arena, values_of(self.rank, numel, dtype));
          self.world.all_reduce(tensor, ReduceOp::sum).wait();
          const auto wide = dtype == at::kDouble || dtype == at::kLong ? dtype : at::kFloat;
          at::Tensor sum = values_of(0, numel, dtype).to(wide);
          for (int rank = 1; rank < self.size; ++rank) {
            sum = sum + values_of(rank, numel, dtype).to(wide);
          }
          EXPECT_TRUE(same_bits(tensor, sum.to(dtype))) << dtype << " " << numel;
        }
      }
    }
  });
}

TEST_P(ShmWorlds, AllReduceFindsTheLargestAndTheSmallest) {
  run_shm_ranks(GetParam(), [](const ShmTestRank& self) {
    for (const int64_t numel : {int64_t{2}, int64_t{5000}}) {
      const auto largest = at::full({numel}, self.rank, at::kLong);
      const auto smallest = at::full({numel}, self.rank, at::kFloat);
      self.world.all_reduce(largest, ReduceOp::max).wait();
      self.world.all_reduce(smallest, ReduceOp::min).wait();
      EXPECT_TRUE((largest == self.size - 1).all().item<bool>());
      EXPECT_TRUE((smallest == 0).all().item<bool>());
    }
  });
}

TEST_P(ShmWorlds, BroadcastGivesTheRootsBits) {
  run_shm_ranks(GetParam(), [](const ShmTestRank& self) {
    for (const int64_t numel : kSizes) {
      for (const bool in_arena : {false, true}) {
        for (int root = 0; root < self.size; ++root) {
          const auto tensor = filled(self.world, in_arena, values_of(self.rank, numel));
          self.world.broadcast(tensor, root).wait();
          EXPECT_TRUE(same_bits(tensor, values_of(root, numel)));
        }
      }
    }
  });
}

TEST_P(ShmWorlds, EmptyShardsAreFine) {
  run_shm_ranks(GetParam(), [](const ShmTestRank& self) {
    // Windows of nothing inside memory that peers can reach: none of it may change.
    const auto around = self.world.allocate(8, at::kFloat);
    around.fill_(self.rank + 1);
    const auto none = around.narrow(0, 3, 0);
    const auto rows = at::full({self.size, 5}, 7.0f).narrow(1, 2, 0);
    self.world.all_gather(rows, none).wait();
    self.world.reduce_scatter(none, rows).wait();
    self.world.all_reduce(none).wait();
    self.world.broadcast(none, 0).wait();
    EXPECT_EQ(self.world.recorder().moved(), 0);
    // The ranks have kept step: the next call finds every rank's values.
    const auto full = at::zeros({8 * self.size});
    self.world.all_gather(full, around).wait();
    for (int rank = 0; rank < self.size; ++rank) {
      EXPECT_TRUE(at::equal(full.narrow(0, 8 * rank, 8), at::full({8}, rank + 1.0f))) << rank;
    }
  });
}

TEST_P(ShmWorlds, BarrierHoldsUntilEveryRankHasCome) {
  std::atomic<int> came = 0;
  run_shm_ranks(GetParam(), [&](const ShmTestRank& self) {
    for (int round = 1; round <= 50; ++round) {
      ++came;
      self.world.barrier();
      EXPECT_GE(came.load(), round * self.size);
      self.world.barrier();
    }
  });
}

TEST(Shm, SlicesNeverChangeTheBits) {
  run_shm_ranks(4, [](const ShmTestRank& self) {
    for (const int64_t numel : {int64_t{4}, int64_t{3000}, int64_t{70004}}) {
      for (const bool in_arena : {false, true}) {
        for (const auto dtype : {at::kFloat, at::kBFloat16}) {
          const auto values = values_of(self.rank, numel, at::kBFloat16).to(at::kFloat);
          const auto full = filled(self.world, in_arena, values);
          const auto old = values_of(9, numel).to(dtype);
          at::Tensor reference;
          for (const int slices : {1, 2, 4}) {
            const int64_t length = numel / slices, begin = self.rank % slices * length;
            const auto shard = filled(self.world, in_arena, old.slice(0, begin, begin + length));
            const ReduceOptions options = {ReduceOp::average, slices, true};
            self.world.reduce_scatter(shard, full, options).wait();
            if (slices == 1) reference = shard.clone();
            EXPECT_TRUE(same_bits(shard, reference.slice(0, begin, begin + length)))
                << numel << " " << slices << " " << dtype;
          }
        }
      }
    }
  });
}

TEST(Shm, SlicedSumsWorkInPlace) {
  run_shm_ranks(4, [](const ShmTestRank& self) {
    for (const int64_t numel : {int64_t{8}, int64_t{70004}}) {
      const auto full = filled(self.world, true, values_of(self.rank, numel));
      const int64_t length = numel / 2, begin = self.rank % 2 * length;
      const auto shard = full.slice(0, begin, begin + length);
      self.world.reduce_scatter(shard, full, {.op = ReduceOp::sum, .slices = 2}).wait();
      EXPECT_TRUE(same_bits(shard, sum_of_all(4, numel).slice(0, begin, begin + length)));
    }
  });
}

TEST(Shm, ReplicasWithDifferentOldValuesEachKeepTheirOwn) {
  run_shm_ranks(4, [](const ShmTestRank& self) {
    constexpr int64_t kNumel = 6000;
    const auto full = filled(self.world, true, at::full({kNumel}, 1.0f));
    const auto shard = filled(self.world, true, at::full({kNumel}, 10.0f * self.rank));
    self.world.reduce_scatter(shard, full, {ReduceOp::sum, 1, true}).wait();
    EXPECT_TRUE((shard == 10.0f * self.rank + 4).all().item<bool>());
  });
}

TEST(Shm, ManyCallsMayBeInFlightAndBeWaitedForInAnyOrder) {
  run_shm_ranks(3, [](const ShmTestRank& self) {
    constexpr int kCalls = 150;  // more than the ring of slots holds
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < kCalls; ++i) {
      const int64_t numel = i % 2 ? 3 : 3000;
      tensors.push_back(filled(self.world, i % 3 == 0, at::full({numel}, float(i + self.rank))));
      works.push_back(self.world.all_reduce(tensors.back()));
    }
    // Each rank in an order of its own.
    for (int i = 0; i < kCalls; ++i) works[(i * 7 + self.rank * 31) % kCalls].wait();
    for (int i = 0; i < kCalls; ++i) {
      EXPECT_TRUE((tensors[i] == 3.0f * i + 3).all().item<bool>()) << i;
    }
  });
}

TEST(Shm, TheResultIsThereBeforeThePeersHaveReadTheInput) {
  std::atomic<bool> has_result = false;
  run_shm_ranks(2, [&](const ShmTestRank& self) {
    const auto full = filled(self.world, true, values_of(self.rank, 2 * 5003));
    const auto shard = self.world.allocate(5003, at::kFloat);
    auto work = self.world.reduce_scatter(shard, full, {.op = ReduceOp::sum});
    // Rank 1 reads nothing before rank 0 has its result.
    if (self.rank == 0) {
      work.wait_for_result();
      has_result = true;
    } else {
      while (!has_result) std::this_thread::yield();
    }
    work.wait();
    const auto expected =
        sum_of_all(2, 2 * 5003).slice(0, self.rank * 5003, (self.rank + 1) * 5003);
    EXPECT_TRUE(same_bits(shard, expected));
  });
}

TEST(Shm, AdvanceDoesThisRanksPartWithoutWaiting) {
  std::atomic<bool> is_issued = false, is_over = false;
  run_shm_ranks(2, [&](const ShmTestRank& self) {
    const auto full = filled(self.world, true, values_of(self.rank, 2 * 5003));
    const auto shard = self.world.allocate(5003, at::kFloat);
    if (self.rank == 1) {
      while (!is_issued) std::this_thread::yield();
    }
    auto work = self.world.reduce_scatter(shard, full);
    work.advance();  // rank 0: there is nothing to do yet
    if (self.rank == 0) {
      is_issued = true;
      work.wait();  // returns although rank 1 waits for nothing
      is_over = true;
    } else {
      while (!is_over) std::this_thread::yield();
      work.wait();
    }
  });
}

TEST(Shm, ShowsTheResultInAscendingRangesWhenItIsFinal) {
  constexpr int64_t kNumel = 200'003;
  run_shm_ranks(3, [&](const ShmTestRank& self) {
    const auto full = filled(self.world, true, values_of(self.rank, 3 * kNumel));
    const auto shard = self.world.allocate(kNumel, at::kFloat);
    const auto expected =
        sum_of_all(3, 3 * kNumel).slice(0, self.rank * kNumel, (self.rank + 1) * kNumel);
    int64_t shown = 0;
    int calls = 0;
    ReduceOptions options{.op = ReduceOp::sum};
    options.on_result = [&](int64_t begin, int64_t end) {
      EXPECT_EQ(begin, shown);
      EXPECT_TRUE(same_bits(shard.slice(0, begin, end), expected.slice(0, begin, end)));
      shown = end;
      ++calls;
    };
    self.world.reduce_scatter(shard, full, options).wait();
    EXPECT_EQ(shown, kNumel);
    EXPECT_GT(calls, 1);
  });
}

TEST(Shm, AllReduceWorksWhenOnlySomeRanksUseSharedMemory) {
  run_shm_ranks(3, [](const ShmTestRank& self) {
    for (const int owner : {0, 1, 2}) {
      const auto tensor = filled(self.world, self.rank == owner, values_of(self.rank, 70001));
      self.world.all_reduce(tensor).wait();
      EXPECT_TRUE(same_bits(tensor, sum_of_all(3, 70001)));
    }
  });
}

TEST(Shm, GroupsWorkBesideEachOther) {
  run_shm_ranks(4, [](const ShmTestRank& self) {
    const auto shards = self.split({{0, 1}, {2, 3}}, "shards");
    const auto replicas = self.split({{0, 2}, {1, 3}}, "replicas");
    EXPECT_EQ(shards.rank(), self.rank % 2);
    EXPECT_EQ(replicas.rank(), self.rank / 2);
    const auto a = filled(self.world, true, at::full({5000}, float(self.rank)));
    const auto b = filled(self.world, true, at::full({5000}, float(self.rank)));
    const auto c = filled(self.world, true, at::full({5000}, float(self.rank)));
    Work works[] = {shards.all_reduce(a), replicas.all_reduce(b), self.world.all_reduce(c)};
    // Ranks wait in different orders, across groups.
    for (int i = 0; i < 3; ++i) works[(i + self.rank) % 3].wait();
    EXPECT_TRUE((a == (self.rank < 2 ? 1.0f : 5.0f)).all().item<bool>());
    EXPECT_TRUE((b == (self.rank % 2 ? 4.0f : 2.0f)).all().item<bool>());
    EXPECT_TRUE((c == 6.0f).all().item<bool>());
  });
}

TEST(Shm, WaitGivesTheBuffersBack) {
  run_shm_ranks(2, [](const ShmTestRank& self) {
    const auto shard = self.world.allocate(5000, at::kFloat);
    const auto full = self.world.allocate(10000, at::kFloat);
    for (int round = 0; round < 200; ++round) {
      shard.fill_(float(2 * round + self.rank));
      self.world.all_gather(full, shard).wait();
      shard.fill_(-1);  // must not reach the peer
      EXPECT_TRUE((full.slice(0, 0, 5000) == 2.0f * round).all().item<bool>()) << round;
      EXPECT_TRUE((full.slice(0, 5000) == 2.0f * round + 1).all().item<bool>()) << round;
    }
  });
}

TEST(Shm, TenThousandSmallCollectivesOnMoreRanksThanCores) {
  run_shm_ranks(4, [](const ShmTestRank& self) {
    const auto tensor = at::zeros({1}, at::kLong);
    for (int i = 0; i < 10000; ++i) {
      tensor.fill_(i);
      self.world.all_reduce(tensor, ReduceOp::sum).wait();
      ASSERT_EQ(*tensor.data_ptr<int64_t>(), 4 * i);
    }
  });
}

TEST(Shm, CommonMemoryIsTheSameZeroedBytesForTheGroup) {
  run_shm_ranks(4, [](const ShmTestRank& self) {
    const auto pairs = self.split({{0, 1}, {2, 3}}, "pairs");
    EXPECT_TRUE(pairs.shares_memory());
    for (int round = 0; round < 3; ++round) {
      const auto common = pairs.allocate_common(1000, at::kFloat);
      EXPECT_TRUE((common == 0).all().item<bool>());
      self.world.barrier();
      common.slice(0, 500 * pairs.rank(), 500 * pairs.rank() + 500).fill_(float(self.rank + 1));
      pairs.barrier();
      const float first = self.rank < 2 ? 1 : 3;
      EXPECT_TRUE((common.slice(0, 0, 500) == first).all().item<bool>());
      EXPECT_TRUE((common.slice(0, 500) == first + 1).all().item<bool>());
    }
  });
}

TEST(Shm, CommonMemoryOfDifferentSizesIsRefused) {
  const auto errors = errors_of_ranks(2, [](const ShmTestRank& self) {
    const auto common = self.world.allocate_common(100 + self.rank, at::kByte);
    self.world.barrier();
  });
  const std::string wanted = "bytes of common memory where another rank asked for";
  EXPECT_TRUE(errors[0].find(wanted) != std::string::npos ||
              errors[1].find(wanted) != std::string::npos)
      << errors[0] << "\n"
      << errors[1];
}

TEST(Shm, GroupsMustHoldEveryRankOnce) {
  const auto domains = ShmDomain::for_threads(4, {});
  EXPECT_THROW(domains[0]->make_backend({{0, 1}, {2}}, "bad"), Error);
  EXPECT_THROW(domains[0]->make_backend({{0, 1}, {2, 2}}, "bad"), Error);
  EXPECT_THROW(domains[0]->make_backend({{0, 1}}, "bad"), Error);
}

}  // namespace
}  // namespace fullshard::comm
