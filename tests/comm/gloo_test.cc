// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gloo/gloo_backend.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <mutex>
#include <thread>

#include "cut_off_store.h"
#include "expect_error.h"
#include "fullshard/comm/gloo/gloo_transport.h"
#include "fullshard/comm/world/world.h"

namespace fullshard::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::MatchesRegex;

// What differs between ranks and elements, and is rounded by every addition.
at::Tensor values(int rank, int64_t numel, at::ScalarType dtype = at::kFloat) {
  const at::Tensor places = at::arange(numel, at::kDouble);
  return ((places * 0.37 + rank * 1.7).sin() * 3.3).to(dtype);
}

bool same_gloo_bits(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.contiguous().view(at::kByte), b.contiguous().view(at::kByte));
}

// What the first message of a call carries, and what it does not.
constexpr int64_t kGlooSizes[] = {7, 5003};

// Runs on both backends and compares every rank's result.
void expect_bits_of_shm(int ranks, const std::function<at::Tensor(const World&)>& body) {
  std::vector<std::vector<at::Tensor>> results(2, std::vector<at::Tensor>(size_t(ranks)));
  for (const size_t which : {0, 1}) {
    run_ranks({.ranks = ranks, .backend = which == 0 ? "shm" : "gloo"}, [&](const World& world) {
      results[which][static_cast<size_t>(world.rank())] = body(world).clone();
    });
  }
  for (size_t rank = 0; rank < results[0].size(); ++rank) {
    EXPECT_TRUE(same_gloo_bits(results[0][rank], results[1][rank])) << "rank " << rank;
  }
}

TEST(Gloo, GathersEveryRanksShard) {
  run_ranks({.ranks = 3, .backend = "gloo"}, [](const World& world) {
    EXPECT_EQ(world.backend(), "gloo");
    for (const int64_t numel : kGlooSizes) {
      const at::Tensor full = at::zeros({3 * numel}, at::kBFloat16);
      world.communicator().all_gather(full, values(world.rank(), numel, at::kBFloat16)).wait();
      for (int rank = 0; rank < 3; ++rank) {
        EXPECT_TRUE(same_gloo_bits(full.narrow(0, rank * numel, numel),
                                   values(rank, numel, at::kBFloat16)));
      }
    }
  });
}

TEST(Gloo, GathersIntoAWindowOfALargerBuffer) {
  run_ranks({.ranks = 2, .backend = "gloo"}, [](const World& world) {
    for (const int64_t numel : kGlooSizes) {
      const at::Tensor buffer = at::zeros({2, numel + 2});
      const at::Tensor window = buffer.narrow(1, 1, numel);
      const at::Tensor own = window.select(0, world.rank());
      own.copy_(values(world.rank(), numel));
      world.communicator().all_gather(window, own).wait();
      EXPECT_TRUE(same_gloo_bits(window.select(0, 0), values(0, numel)));
      EXPECT_TRUE(same_gloo_bits(window.select(0, 1), values(1, numel)));
      EXPECT_EQ(buffer.select(1, 0).abs().sum().item<float>(), 0);
      EXPECT_EQ(buffer.select(1, numel + 1).abs().sum().item<float>(), 0);
    }
  });
}

TEST(Gloo, ReducesToTheBitsOfShm) {
  for (const int ranks : {2, 3, 4}) {
    expect_bits_of_shm(ranks, [](const World& world) {
      std::vector<at::Tensor> results;
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong}) {
        for (const int64_t numel : kGlooSizes) {
          const at::Tensor shard = at::zeros({numel}, dtype);
          const ReduceOp op = dtype == at::kLong ? ReduceOp::sum : ReduceOp::average;
          world.communicator()
              .reduce_scatter(shard, values(world.rank(), numel * world.size(), dtype), {.op = op})
              .wait();
          results.push_back(shard.view(at::kByte));
        }
      }
      return at::cat(results);
    });
  }
}

TEST(Gloo, GivesTheSameBitsForEveryNumberOfSlices) {
  run_ranks({.ranks = 4, .backend = "gloo"}, [&](const World& world) {
    for (const int64_t quarter : kGlooSizes) {
      const int64_t numel = 4 * quarter;
      const at::Tensor full = values(world.rank(), numel), whole = full.clone();
      world.communicator().all_reduce(whole, ReduceOp::average).wait();
      for (const int slices : {1, 2, 4}) {
        const int64_t length = numel / slices;
        const at::Tensor shard = at::full({length}, 0.25F);
        world.communicator()
            .reduce_scatter(shard, full, {.slices = slices, .accumulate = true})
            .wait();
        const at::Tensor expected = whole.narrow(0, world.rank() % slices * length, length) + 0.25F;
        EXPECT_TRUE(same_gloo_bits(shard, expected)) << slices << " slices";
      }
    }
  });
}

TEST(Gloo, AccumulatesUnroundedIntoAWiderDtype) {
  expect_bits_of_shm(4, [](const World& world) {
    const at::Tensor shard = values(9 + world.rank(), 5003);
    world.communicator()
        .reduce_scatter(shard, values(world.rank(), 10006, at::kBFloat16),
                        {.slices = 2, .accumulate = true})
        .wait();
    return shard;
  });
}

// Half a step of bf16 from the ranks and half a step that was there make a whole one, unless the
// first is rounded away alone.
TEST(Gloo, RoundsOnceWhereItAccumulatesInto16Bits) {
  run_ranks({.ranks = 4, .backend = "gloo"}, [](const World& world) {
    static constexpr float kValues[] = {1.F, 1.F / 256, 0.F, 0.F};
    for (const int slices : {1, 2, 4}) {
      const at::Tensor shard = at::full({8 / slices}, 1.F / 256, at::kBFloat16);
      const at::Tensor full = at::full({8}, kValues[world.rank()], at::kBFloat16);
      world.communicator()
          .reduce_scatter(shard, full, {.op = ReduceOp::sum, .slices = slices, .accumulate = true})
          .wait();
      EXPECT_TRUE((shard == 1 + 1.F / 128).all().item<bool>()) << slices << " slices";
    }
  });
}

TEST(Gloo, ReducesInPlaceIntoTheOwnRow) {
  expect_bits_of_shm(3, [](const World& world) {
    const at::Tensor full = values(world.rank(), 6000).view({3, 2000});
    const at::Tensor own = full.select(0, world.rank());
    world.communicator().reduce_scatter(own, full, {.op = ReduceOp::sum}).wait();
    return own;
  });
}

TEST(Gloo, FindsMaximaAndMinima) {
  run_ranks({.ranks = 3, .backend = "gloo"}, [](const World& world) {
    const at::Tensor top = at::full({2}, world.rank(), at::kLong);
    world.communicator().all_reduce(top, ReduceOp::max).wait();
    EXPECT_EQ(top[1].item<int64_t>(), 2);
    const at::Tensor bottom = at::full({2}, 5.F - static_cast<float>(world.rank()));
    world.communicator().all_reduce(bottom, ReduceOp::min).wait();
    EXPECT_EQ(bottom[0].item<float>(), 3.F);
  });
}

// 1e8 swallows a lone 1, but not the other host's sum of them.
TEST(Gloo, AddsHostByHost) {
  std::vector<float> sums;
  for (const int ranks_per_host : {0, 2}) {
    run_ranks({.ranks = 4, .backend = "gloo", .ranks_per_host = ranks_per_host},
              [&](const World& world) {
                EXPECT_EQ(world.num_hosts(), ranks_per_host == 0 ? 1 : 2);
                static constexpr float kValues[] = {1e8F, 0.F, 3.F, 3.F};
                const at::Tensor sum = at::full({1}, kValues[world.rank()]);
                world.communicator().all_reduce(sum).wait();
                if (world.rank() == 3) sums.push_back(sum.item<float>());
              });
  }
  EXPECT_EQ(sums[0], (1e8F + 3.F) + 3.F);
  EXPECT_EQ(sums[1], 1e8F + 6.F);
  EXPECT_NE(sums[0], sums[1]);
}

TEST(Gloo, BroadcastsFromAnyRoot) {
  run_ranks({.ranks = 3, .backend = "gloo"}, [](const World& world) {
    for (const int64_t numel : kGlooSizes) {
      for (int root = 0; root < 3; ++root) {
        const at::Tensor tensor = values(world.rank(), numel, at::kHalf);
        world.communicator().broadcast(tensor, root).wait();
        EXPECT_TRUE(same_gloo_bits(tensor, values(root, numel, at::kHalf)));
      }
    }
    world.communicator().barrier();
  });
}

// What is made in that mode is waited for in it or after it.
TEST(Gloo, FillsTensorsThatWereMadeInAnInferenceMode) {
  const std::vector<std::vector<int>> layouts = {{0, 1}, {0, 1, 2}, {0, 0, 1, 1}, {0, 0, 1}};
  for (const std::vector<int>& hosts : layouts) {
    const auto size = static_cast<int>(hosts.size());
    run_ranks({.ranks = size, .backend = "gloo", .hosts = hosts}, [&](const World& world) {
      const Communicator& everyone = world.communicator();
      for (const int64_t numel : kGlooSizes) {
        at::Tensor full, window, sum, received, told;
        std::vector<Work> works;
        {
          const c10::InferenceMode inference;
          const at::Tensor own = values(world.rank(), numel);
          full = at::empty({size, numel});
          window = at::empty({size, numel + 1}).narrow(1, 1, numel);
          sum = at::zeros({numel});
          received = at::empty({size, numel});
          told = own.clone();
          everyone.all_gather(full, own).wait();
          works.push_back(everyone.all_gather(window, own));
          works.push_back(everyone.reduce_scatter(sum, own.repeat({size}).view({size, numel}),
                                                  {.op = ReduceOp::max, .accumulate = true}));
          works.push_back(everyone.all_to_all(received, own.repeat({size}).view({size, numel})));
          works.push_back(everyone.broadcast(told, size - 1));
        }
        for (Work& work : works) work.wait();
        EXPECT_TRUE(full.is_inference());
        for (int rank = 0; rank < size; ++rank) {
          EXPECT_TRUE(same_gloo_bits(full.select(0, rank), values(rank, numel)));
        }
        EXPECT_TRUE(at::equal(window, full));
        EXPECT_TRUE(at::equal(received, full));
        EXPECT_TRUE(at::equal(sum, full.amax(0)));
        EXPECT_TRUE(same_gloo_bits(told, values(size - 1, numel)));
      }
    });
  }
}

TEST(Gloo, FinishesManyCallsWaitedForInReverse) {
  run_ranks({.ranks = 2, .backend = "gloo"}, [](const World& world) {
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int call = 0; call < 20; ++call) {
      tensors.push_back(at::full({3}, call + world.rank(), at::kLong));
      works.push_back(world.communicator().all_reduce(tensors.back()));
    }
    for (int call = 19; call >= 0; --call) {
      works[static_cast<size_t>(call)].wait();
      EXPECT_EQ(tensors[static_cast<size_t>(call)][2].item<int64_t>(), 2 * call + 1);
    }
  });
}

// Nothing is written around an empty window, nothing is counted as moved, nobody passes before all
// have come, and the calls that follow are still the ranks' same ones.
TEST(Gloo, MovesNothingButStillMeetsForEmptyTensors) {
  std::atomic<int> came = 0;
  run_ranks({.ranks = 2, .backend = "gloo"}, [&](const World& world) {
    const Communicator& everyone = world.communicator();
    const at::Tensor around = at::full({4}, 7.F);
    const at::Tensor none = around.narrow(0, 2, 0);
    int expected = 0;
    const auto meets = [&](Work work) {
      work.wait();
      expected += 2;
      EXPECT_GE(came.load(), expected);
    };
    ++came;
    meets(everyone.all_gather(none, none));
    ++came;
    meets(everyone.reduce_scatter(none, none));
    ++came;
    meets(everyone.broadcast(none, 1));
    ++came;
    meets(everyone.all_reduce(none));
    EXPECT_TRUE(at::equal(around, at::full({4}, 7.F)));
    EXPECT_EQ(world.recorder().totals(Operation::all_gather).calls, 1);
    EXPECT_EQ(world.recorder().moved(), 0);

    const at::Tensor full = at::zeros({6});
    everyone.all_gather(full, values(world.rank(), 3)).wait();
    EXPECT_TRUE(same_gloo_bits(full, at::cat({values(0, 3), values(1, 3)})));
  });
}

// Ranks as some schedulers hand them out, one host after the other: 0 and 2 on host A, 1 and 3 on
// host B. 1e8 swallows a lone 3, but not host B's sum of them.
TEST(Gloo, AddsHostByHostWhereRanksAreInterleaved) {
  const std::vector<int> hosts = {0, 1, 0, 1};
  static constexpr float kValues[] = {1e8F, 3.F, 0.F, 3.F};
  const auto store = make_thread_store();
  std::vector<float> sums(4), scattered(4);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      const auto recorder = std::make_shared<Recorder>(rank);
      const auto transport = make_gloo_transport(
          {.rank = rank, .hosts = hosts, .loopback = true, .device = {.address = "127.0.0.1"}},
          store, recorder);
      const Communicator everyone(transport->make_backend({{0, 1, 2, 3}}, "world"), recorder,
                                  "world");
      const at::Tensor sum = at::full({1}, kValues[rank]);
      everyone.all_reduce(sum).wait();
      sums[static_cast<size_t>(rank)] = sum.item<float>();
      const at::Tensor own = at::zeros({1});
      everyone.reduce_scatter(own, at::full({4}, kValues[rank]), {.op = ReduceOp::sum}).wait();
      scattered[static_cast<size_t>(rank)] = own.item<float>();
      everyone.barrier();
      transport->leave("");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(1e8F + 6.F, ((1e8F + 3.F) + 0.F) + 3.F);
  EXPECT_EQ(sums, std::vector<float>(4, 1e8F + 6.F));
  EXPECT_EQ(scattered, std::vector<float>(4, 1e8F + 6.F));
}

// Every rank's own error, by rank.
std::vector<std::string> errors_of(const ThreadRanks& options,
                                   const std::function<void(const World&)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(options.ranks));
  run_ranks(options, [&](const World& world) {
    try {
      body(world);
    } catch (const std::exception& error) {
      errors[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  return errors;
}

TEST(Gloo, TellsRanksThatDisagree) {
  const auto errors = errors_of({.ranks = 2, .backend = "gloo"}, [](const World& world) {
    world.communicator().barrier();
    if (world.rank() == 0) {
      world.communicator().reduce_scatter(at::zeros({128}), at::zeros({256}), {}, "a").wait();
    } else {
      world.communicator().all_gather(at::zeros({128}), at::zeros({64}), "b").wait();
    }
  });
  EXPECT_EQ(errors[0],
            "ranks disagree at sequence 2 of group world: rank 0 calls reduce_scatter of a "
            "(1024 bytes), rank 1 calls all_gather of b (512 bytes); all ranks must make "
            "the same calls in the same order");
  EXPECT_EQ(errors[1], errors[0]);
}

TEST(Gloo, ShowsTheDetailWhereCallsLookAlike) {
  const auto errors = errors_of({.ranks = 2, .backend = "gloo"}, [](const World& world) {
    const auto op = world.rank() == 0 ? ReduceOp::sum : ReduceOp::max;
    world.communicator().all_reduce(at::zeros({2}), op).wait();
  });
  EXPECT_EQ(errors[0],
            "ranks disagree at sequence 1 of group world: rank 0 calls all_reduce (8 bytes of "
            "Float, sum in 1 slices, into Float, sequence 1), rank 1 calls all_reduce (8 bytes of "
            "Float, max in 1 slices, into Float, sequence 1); all ranks must make the same calls "
            "in the same order");
}

TEST(Gloo, NamesARankThatFailedAndItsReason) {
  std::mutex mutex;
  std::string consequence;
  const std::string cause = error_of([&] {
    run_ranks({.ranks = 2, .backend = "gloo"}, [&](const World& world) {
      world.communicator().barrier("embedding");
      if (world.rank() == 1) fail("disk full");
      try {
        world.communicator().all_reduce(at::zeros({2}), ReduceOp::sum, "block 1").wait();
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        consequence = error.what();
        throw;
      }
    });
  });
  EXPECT_EQ(cause, "disk full");
  EXPECT_EQ(consequence,
            "rank 0: all_reduce of block 1 (group world, sequence 2) waits for rank 1, "
            "which failed: disk full; its last act: barrier of embedding (group world, "
            "sequence 1), finished; see rank 1's log");
}

TEST(Gloo, NamesARankThatDoesNotCome) {
  ThreadRanks options{.ranks = 3, .backend = "gloo"};
  options.timeouts.step = 1s;
  std::latch running(2);  // the other two begin to wait together
  std::latch gave_up(2);  // rank 2 comes only after the others have given it up
  const auto errors = errors_of(options, [&](const World& world) {
    if (world.rank() == 2) {
      gave_up.wait();
      world.communicator().barrier("late");
      return;
    }
    running.arrive_and_wait();
    try {
      world.communicator().barrier("block 1");
    } catch (...) {
      gave_up.count_down();
      throw;
    }
  });
  for (const int rank : {0, 1}) {
    const std::string& error = errors[static_cast<size_t>(rank)];
    EXPECT_EQ(error.substr(0, error.find("has not come")),
              fmt::format("rank {}: barrier of block 1 (group world, sequence 1) waits for "
                          "rank 2, which ",
                          rank));
    EXPECT_NE(error.find("(step timeout); its last act: none yet; raise timeouts.step "
                         "(--step-timeout) if it is only slow"),
              std::string::npos)
        << error;
  }
  EXPECT_EQ(errors[2].substr(0, errors[2].find(", which")),
            "rank 2: barrier of late (group world, sequence 1) comes too late: the other "
            "ranks have given this one up");
}

TEST(Gloo, GivesUpCallsInFlightWhenAnExceptionEndsTheRank) {
  EXPECT_EQ(error_of([] {
              run_ranks({.ranks = 2, .backend = "gloo"}, [](const World& world) {
                Work work = world.communicator().all_gather(at::zeros({4}), at::zeros({2}));
                if (world.rank() == 0) fail("stopped in forward");
                work.wait();
                world.communicator().barrier();
              });
            }),
            "stopped in forward");
}

// At the time at which a rank looks for those who are late, the network may not have given up the
// store's host yet: the look must not outlast that. Slow: nobody is late before some seconds.
TEST(GlooSlow, ARankThatLooksAroundHearsMeanwhileThatTheStoresHostIsGone) {
  const auto beneath = make_thread_store();
  const StoreLines lines;
  std::latch connected(2), over(2);
  const auto play = [&](int rank, std::shared_ptr<Store> store, auto&& body) {
    const GlooOptions options{
        .rank = rank, .hosts = {0, 1}, .loopback = true, .device = {.address = "127.0.0.1"}};
    const auto transport =
        make_gloo_transport(options, std::move(store), std::make_shared<Recorder>(rank));
    const auto backend = transport->make_backend({{0, 1}}, "shards");
    connected.arrive_and_wait();
    body(*backend);
    over.arrive_and_wait();
  };
  std::thread holder([&] { play(0, beneath, [](Backend&) {}); });
  std::thread network([&] {
    connected.wait();
    lines.become(StoreLine::State::silent);
    std::this_thread::sleep_for(kLateAfter + 1s);  // the time that the network takes
    lines.others->become(StoreLine::State::cut);
    over.wait();
    lines.first->become(StoreLine::State::cut);
  });
  std::string error;
  std::thread beyond([&] {
    play(1, std::make_shared<CutOffStore>(beneath, lines), [&](Backend& backend) {
      auto barrier = std::async(std::launch::async, [&] {
        backend.barrier({.sequence = 1, .group = "shards", .unit = "head"});
      });
      EXPECT_EQ(barrier.wait_for(1min), std::future_status::ready);
      lines.first->become(StoreLine::State::cut);
      error = error_of([&] { barrier.get(); });
    });
  });
  for (std::thread* thread : {&holder, &network, &beyond}) thread->join();
  // What the other did last is known if its beat was read before.
  EXPECT_THAT(
      error,
      MatchesRegex("rank 1: barrier of head .group shards, sequence 1. waits for rank 0, which "
                   "cannot be reached; (its last act: none yet|it has made no call yet); the "
                   "network to its host is cut or too slow"));
}

}  // namespace
}  // namespace fullshard::comm
