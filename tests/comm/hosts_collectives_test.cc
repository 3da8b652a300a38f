// SPDX-License-Identifier: Apache-2.0
// Several hosts with several ranks each: threads that share memory host by host, gloo between them.
#include "fullshard/comm/gloo/hosts_collectives.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <latch>

#include "expect_error.h"
#include "fullshard/comm/gloo/gloo_group.h"
#include "fullshard/comm/ordered_sum.h"
#include "fullshard/comm/world/world.h"

namespace fullshard::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Hosts = std::vector<int>;

ThreadRanks on(const Hosts& hosts) {
  return {.ranks = static_cast<int>(hosts.size()), .backend = "gloo", .hosts = hosts};
}

// What differs between ranks and elements, and is rounded by every addition.
at::Tensor hosts_values(int rank, int64_t numel, at::ScalarType dtype) {
  const at::Tensor places = at::arange(numel, at::kDouble);
  const at::Tensor all = (places * 0.37 + rank * 1.7).sin() * 3.3;
  return dtype == at::kLong ? (all * 1000).to(dtype) : all.to(dtype);
}

bool same_hosts_bits(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.contiguous().view(at::kByte), b.contiguous().view(at::kByte));
}

struct HostsCase {
  Hosts hosts;
  int slices;
  int64_t numel;  // of a slice
  at::ScalarType in, out;
  ReduceOp op;
  bool accumulate;
};

// The one expression, over all ranks' rows at once.
at::Tensor expected_slice(const HostsCase& each, int rank) {
  const HostOrder order(each.hosts);
  const int64_t begin = rank % each.slices * each.numel;
  std::vector<at::Tensor> kept;
  std::vector<const void*> rows;
  for (const int other : order.ranks) {
    kept.push_back(hosts_values(other, each.slices * each.numel, each.in)
                       .narrow(0, begin, each.numel)
                       .contiguous());
    rows.push_back(kept.back().const_data_ptr());
  }
  at::Tensor output = hosts_values(90 + rank, each.numel, each.out);
  ordered_sum(output.mutable_data_ptr(), each.out, rows, each.in, each.numel,
              {.op = each.op, .accumulate = each.accumulate, .rows_per_host = order.rows_per_host});
  return output;
}

void expect_reduced(const std::vector<HostsCase>& cases) {
  run_ranks(on(cases.front().hosts), [&](const World& world) {
    for (const HostsCase& each : cases) {
      const at::Tensor shard = hosts_values(90 + world.rank(), each.numel, each.out);
      const at::Tensor full = hosts_values(world.rank(), each.slices * each.numel, each.in);
      world.communicator()
          .reduce_scatter(shard, full,
                          {.op = each.op, .slices = each.slices, .accumulate = each.accumulate})
          .wait();
      EXPECT_TRUE(same_hosts_bits(shard, expected_slice(each, world.rank())))
          << "rank " << world.rank() << ", " << each.slices << " slices of " << each.numel << " "
          << c10::toString(each.in) << " into " << c10::toString(each.out) << ", op "
          << static_cast<int>(each.op) << (each.accumulate ? ", accumulated" : "");
    }
  });
}

std::vector<HostsCase> cases_on(const Hosts& hosts) {
  std::vector<HostsCase> cases;
  for (int slices = 1; slices <= static_cast<int>(hosts.size()); ++slices) {
    if (hosts.size() % static_cast<size_t>(slices) != 0) continue;
    for (const int64_t numel : {7, 5003}) {  // in the first message, and beyond it
      for (const bool accumulate : {false, true}) {
        cases.push_back(
            {hosts, slices, numel, at::kFloat, at::kFloat, ReduceOp::average, accumulate});
        cases.push_back(
            {hosts, slices, numel, at::kBFloat16, at::kFloat, ReduceOp::average, accumulate});
        cases.push_back({hosts, slices, numel, at::kHalf, at::kHalf, ReduceOp::sum, accumulate});
      }
      cases.push_back({hosts, slices, numel, at::kDouble, at::kDouble, ReduceOp::average, false});
      cases.push_back({hosts, slices, numel, at::kLong, at::kLong, ReduceOp::sum, false});
      cases.push_back({hosts, slices, numel, at::kFloat, at::kFloat, ReduceOp::max, false});
      cases.push_back({hosts, slices, numel, at::kLong, at::kLong, ReduceOp::min, false});
    }
  }
  return cases;
}

class SeveralHosts : public ::testing::TestWithParam<Hosts> {};

TEST_P(SeveralHosts, ReduceToTheBitsOfTheOneExpression) { expect_reduced(cases_on(GetParam())); }

TEST_P(SeveralHosts, GatherEveryRanksShard) {
  run_ranks(on(GetParam()), [](const World& world) {
    for (const int64_t numel : {1, 100, 5000, 40000}) {
      const at::Tensor buffer = at::zeros({world.size(), numel + 3}, at::kBFloat16);
      const at::Tensor window = buffer.narrow(1, 1, numel);
      world.communicator()
          .all_gather(window, hosts_values(world.rank(), numel, at::kBFloat16))
          .wait();
      for (int rank = 0; rank < world.size(); ++rank) {
        EXPECT_TRUE(
            same_hosts_bits(window.select(0, rank), hosts_values(rank, numel, at::kBFloat16)))
            << numel << " elements of rank " << rank;
      }
      EXPECT_EQ(buffer.select(1, 0).abs().sum().item<float>(), 0);
      EXPECT_EQ(buffer.narrow(1, numel + 1, 2).abs().sum().item<float>(), 0);
    }
  });
}

TEST_P(SeveralHosts, ExchangeRowsAllToAll) {
  const auto size = static_cast<int64_t>(GetParam().size());
  run_ranks(on(GetParam()), [&](const World& world) {
    for (const int64_t numel : {1, 7, 50003}) {
      for (const auto dtype : {at::kByte, at::kBFloat16}) {
        const auto sent_by = [&](int rank) {
          return (at::arange(size * numel) * 7 + rank * 31).remainder(251).to(dtype);
        };
        const auto wide = at::zeros({size, numel + 2}, dtype);
        world.communicator()
            .all_to_all(wide.narrow(1, 1, numel), sent_by(world.rank()), "rows")
            .wait();
        for (int rank = 0; rank < world.size(); ++rank) {
          const auto expected = sent_by(rank).narrow(0, world.rank() * numel, numel);
          EXPECT_TRUE(same_hosts_bits(wide[rank].narrow(0, 1, numel), expected))
              << "rank " << world.rank() << " from " << rank << ", " << numel;
        }
        EXPECT_EQ(wide.select(1, 0).sum().item<double>(), 0);
        EXPECT_EQ(wide.select(1, numel + 1).sum().item<double>(), 0);
      }
    }
  });
}

TEST_P(SeveralHosts, BroadcastFromAnyRoot) {
  run_ranks(on(GetParam()), [](const World& world) {
    for (const int64_t numel : {3, 5000}) {
      for (int root = 0; root < world.size(); ++root) {
        const at::Tensor tensor = hosts_values(world.rank(), numel, at::kFloat);
        world.communicator().broadcast(tensor, root).wait();
        EXPECT_TRUE(same_hosts_bits(tensor, hosts_values(root, numel, at::kFloat)))
            << "root " << root;
      }
    }
  });
}

TEST_P(SeveralHosts, WaitForAllAtABarrierAndForEmptyTensors) {
  std::atomic<int> came = 0;
  run_ranks(on(GetParam()), [&](const World& world) {
    const at::Tensor none = at::zeros({0});
    for (int round = 1; round <= 10; ++round) {
      ++came;
      if (round % 2 == 0) {
        world.communicator().all_reduce(none).wait();
      } else {
        world.communicator().barrier();
      }
      EXPECT_GE(came.load(), round * world.size());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, SeveralHosts,
                         ::testing::Values(Hosts{0, 0, 1, 1}, Hosts{0, 1, 0, 1}, Hosts{0, 1, 1, 0},
                                           Hosts{0, 0, 0, 1, 1, 1}, Hosts{0, 0, 1, 1, 2, 2},
                                           Hosts{0, 1, 2}));

INSTANTIATE_TEST_SUITE_P(Uneven, SeveralHosts,
                         ::testing::Values(Hosts{0, 0, 1}, Hosts{0, 1, 1}, Hosts{0, 0, 0, 1},
                                           Hosts{0, 1, 0, 0}, Hosts{0, 0, 0, 1, 1},
                                           Hosts{0, 1, 1, 2, 2, 2}, Hosts{0, 0, 0, 0, 0, 1, 1, 1}));

// Two hosts. A rank has at most one partner over gloo, so a call over gloo is a message.
int64_t messages_on(const Hosts& hosts, const std::function<void(const World&)>& act) {
  int64_t before = 0, after = 0;
  std::barrier<> together(static_cast<std::ptrdiff_t>(hosts.size()));
  run_ranks(on(hosts), [&](const World& world) {
    together.arrive_and_wait();
    if (world.rank() == 0) before = GlooGroup::num_calls();
    together.arrive_and_wait();
    act(world);
    together.arrive_and_wait();
    if (world.rank() == 0) after = GlooGroup::num_calls();
    together.arrive_and_wait();
  });
  return after - before;
}

int64_t messages_of(const std::function<void(const World&)>& act) {
  return messages_on({0, 0, 1, 1}, act);
}

// Rank 2 of three on a host has no lane; nobody but those of a lane is connected.
TEST(HostsMessages, AreThoseOfTheLanesWhereHostsAreUneven) {
  const Hosts hosts = {0, 0, 0, 1, 1};
  EXPECT_EQ(
      messages_on(hosts,
                  [](const World& world) {
                    world.communicator().all_reduce(at::zeros({400})).wait();
                    world.communicator().all_gather(at::zeros({500}), at::zeros({100})).wait();
                    world.communicator().barrier();
                  }),
      3 * 4);
  EXPECT_EQ(messages_on(hosts,
                        [](const World& world) {
                          world.communicator().broadcast(at::zeros({100}), 2).wait();
                        }),
            2)
      << "the lane that carries the root";
  EXPECT_EQ(
      messages_on(hosts,
                  [](const World& world) {
                    world.communicator().all_gather(at::zeros({50000}), at::zeros({10000})).wait();
                  }),
      2 * 4);
  EXPECT_EQ(
      messages_on(
          hosts,
          [](const World& world) {
            world.communicator().reduce_scatter(at::zeros({10000}), at::zeros({50000})).wait();
          }),
      2 * 4);
  EXPECT_EQ(messages_on(hosts,
                        [](const World& world) {
                          world.communicator().all_reduce(at::zeros({40000})).wait();
                        }),
            3 * 4);
}

TEST(HostsMessages, AreOnePerRankForASmallCall) {
  EXPECT_EQ(messages_of([](const World& world) {
              world.communicator().all_reduce(at::zeros({400}), ReduceOp::average).wait();
            }),
            4);
  EXPECT_EQ(messages_of([](const World& world) {
              world.communicator().all_gather(at::zeros({400}), at::zeros({100})).wait();
            }),
            4);
  EXPECT_EQ(messages_of([](const World& world) { world.communicator().barrier(); }), 4);
  EXPECT_EQ(messages_of([](const World& world) {
              world.communicator().broadcast(at::zeros({100}), 1).wait();
            }),
            2)
      << "only the root's lane";
}

TEST(HostsMessages, AreTwoForALargeCallAndThreeForALargeAllReduce) {
  EXPECT_EQ(messages_of([](const World& world) {
              world.communicator().all_gather(at::zeros({40000}), at::zeros({10000})).wait();
            }),
            8);
  EXPECT_EQ(messages_of([](const World& world) {
              world.communicator().reduce_scatter(at::zeros({10000}), at::zeros({40000})).wait();
            }),
            8);
  EXPECT_EQ(messages_of([](const World& world) {
              world.communicator().all_reduce(at::zeros({40000})).wait();
            }),
            12);
}

TEST(HostsMessages, AreNoneInsideAHost) {
  EXPECT_EQ(messages_of([](const World& world) {
              const Communicator host = world.split({{0, 1}, {2, 3}}, "shards");
              EXPECT_EQ(host.backend_name(), "shm");
              EXPECT_TRUE(host.shares_memory());
              const at::Tensor sum = at::full({30000}, world.rank(), at::kFloat);
              host.all_reduce(sum).wait();
              EXPECT_EQ(sum[7].item<float>(), world.rank() < 2 ? 1.F : 5.F);
            }),
            0);
}

TEST(HostsMessages, OfAHybridReductionStayInTheLane) {
  EXPECT_EQ(
      messages_of([](const World& world) {
        const at::Tensor shard = at::zeros({20000});
        world.communicator().reduce_scatter(shard, at::full({40000}, 2.F), {.slices = 2}).wait();
        EXPECT_EQ(shard[19999].item<float>(), 2.F);
      }),
      12);
}

enum class AfterError { leaves_well, fails };

// Every rank's own error, by rank.
std::vector<std::string> hosts_errors_of(const ThreadRanks& options, AfterError after,
                                         const std::function<void(const World&)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(options.ranks));
  try {
    run_ranks(options, [&](const World& world) {
      try {
        body(world);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(world.rank())] = error.what();
        if (after == AfterError::fails) throw;
      }
    });
  } catch (const Error&) {  // each rank's own is what counts
  }
  return errors;
}

TEST(HostsFaults, RanksThatDisagreeInsideAHostAreTold) {
  const auto errors =
      hosts_errors_of(on({0, 0, 1, 1}), AfterError::leaves_well, [](const World& world) {
        const auto op = world.rank() % 2 == 0 ? ReduceOp::sum : ReduceOp::max;
        world.communicator().all_reduce(at::zeros({2}), op).wait();
      });
  EXPECT_EQ(errors[3],
            "ranks disagree at sequence 1 of group world: rank 2 calls all_reduce (8 bytes of "
            "Float, sum in 1 slices, into Float, sequence 1), rank 3 calls all_reduce (8 bytes of "
            "Float, max in 1 slices, into Float, sequence 1); all ranks must make the same calls "
            "in the same order");
  EXPECT_EQ(errors[2], errors[3]);
}

TEST(HostsFaults, HostsThatDisagreeAreTold) {
  const auto errors =
      hosts_errors_of(on({0, 0, 1, 1}), AfterError::leaves_well, [](const World& world) {
        if (world.rank() < 2) {
          world.communicator().all_gather(at::zeros({40000}), at::zeros({10000}), "a").wait();
        } else {
          world.communicator().reduce_scatter(at::zeros({9}), at::zeros({36}), {}, "b").wait();
        }
      });
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(errors[rank],
              "ranks disagree at sequence 1 of group world: rank 0 calls all_gather of a (160000 "
              "bytes), rank 2 calls reduce_scatter of b (144 bytes); all ranks must make the same "
              "calls in the same order");
  }
}

TEST(HostsFaults, ARankThatFailedIsNamedOnAllHosts) {
  const auto errors = hosts_errors_of(on({0, 0, 1, 1}), AfterError::fails, [](const World& world) {
    world.communicator().barrier("embedding");
    if (world.rank() == 3) fail("disk full");
    world.communicator().all_reduce(at::zeros({9000}), ReduceOp::sum, "block 1").wait();
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(errors[static_cast<size_t>(rank)],
                StartsWith(fmt::format("rank {}: all_reduce of block 1 (group world, sequence 2) "
                                       "waits for rank 3, which failed: disk full; its last act: ",
                                       rank)));
  }
}

TEST(HostsFaults, ARankThatDoesNotComeIsNamedOnAllHosts) {
  ThreadRanks options = on({0, 0, 1, 1});
  options.timeouts.step = 1s;
  std::latch running(3), gave_up(3);
  const auto errors = hosts_errors_of(options, AfterError::leaves_well, [&](const World& world) {
    if (world.rank() == 2) return gave_up.wait();
    running.arrive_and_wait();
    try {
      world.communicator().barrier("block 1");
    } catch (...) {
      gave_up.count_down();
      throw;
    }
  });
  for (const int rank : {0, 1, 3}) {
    EXPECT_THAT(errors[static_cast<size_t>(rank)],
                AllOf(StartsWith(fmt::format("rank {}: barrier of block 1 (group world, sequence "
                                             "1) waits for rank 2, which has not come for ",
                                             rank)),
                      HasSubstr("(step timeout); its last act: none yet; raise timeouts.step "
                                "(--step-timeout) if it is only slow")));
  }
}

// Rank 1 has no lane: it waits for rank 0, which waits for the other host, and does not blame it.
TEST(HostsFaults, ARankThatDoesNotComeIsNamedByARankWithoutALane) {
  ThreadRanks options = on({0, 0, 1});
  options.timeouts.step = 1s;
  std::latch running(2), gave_up(2);
  const auto errors = hosts_errors_of(options, AfterError::leaves_well, [&](const World& world) {
    if (world.rank() == 2) return gave_up.wait();
    running.arrive_and_wait();
    try {
      world.communicator().barrier("block 1");
    } catch (...) {
      gave_up.count_down();
      throw;
    }
  });
  for (const int rank : {0, 1}) {
    EXPECT_THAT(
        errors[static_cast<size_t>(rank)],
        StartsWith(fmt::format("rank {}: barrier of block 1 (group world, sequence 1) waits "
                               "for rank 2, which has not come for ",
                               rank)));
  }
}

TEST(HostsFaults, UnevenHostsThatDisagreeAreTold) {
  const auto errors =
      hosts_errors_of(on({0, 0, 1}), AfterError::leaves_well, [](const World& world) {
        if (world.rank() < 2) {
          world.communicator().all_gather(at::zeros({30000}), at::zeros({10000}), "a").wait();
        } else {
          world.communicator().reduce_scatter(at::zeros({9}), at::zeros({27}), {}, "b").wait();
        }
      });
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(errors[rank],
              "ranks disagree at sequence 1 of group world: rank 0 calls all_gather of a (120000 "
              "bytes), rank 2 calls reduce_scatter of b (108 bytes); all ranks must make the same "
              "calls in the same order");
  }
}

// Ranks 0 and 1 wait for each other in a group of their own, and are told of the other host's rank.
TEST(HostsFaults, AreToldInGroupsInsideAHostToo) {
  const auto errors = hosts_errors_of(on({0, 0, 1, 1}), AfterError::fails, [](const World& world) {
    const Communicator host = world.split({{0, 1}, {2, 3}}, "shards");
    if (world.rank() == 2) fail("disk full");
    if (world.rank() == 1) world.communicator().barrier();
    host.barrier("block 1");
  });
  EXPECT_THAT(errors[1], HasSubstr("waits for rank 2, which failed: disk full; "));
  EXPECT_THAT(errors[0], HasSubstr("rank 2, which failed: disk full; "));
}

}  // namespace
}  // namespace fullshard::comm
