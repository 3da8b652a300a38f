// SPDX-License-Identifier: Apache-2.0
// Graphs that differ between ranks and steps. Whatever a rank leaves out, the others do not wait
// for it in vain, and the gradients are those of the same model without the engine. A failure
// prints the seed that repeats it.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "fullshard/engine/engine_access.h"
#include "tests/training/branch_model.h"

namespace fullshard::testing {
namespace {

// FULLSHARD_SEED=n repeats one case.
void check_cases(const std::string& backend, uint64_t num_cases) {
  uint64_t first = 1, last = num_cases;
  if (const char* only = std::getenv("FULLSHARD_SEED")) {
    first = last = std::strtoull(only, nullptr, 10);
  }
  for (uint64_t seed = first; seed <= last; ++seed) {
    const auto spec = draw_case(seed, backend);
    SCOPED_TRACE(spec.text());
    run_ranks({.ranks = spec.ranks, .backend = spec.backend},
              [&](const World& world) { EXPECT_EQ(differing_gradients(spec, world), ""); });
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
}

TEST(Branches, ChosenPerRankAndStepGiveTheUnshardedGradients) { check_cases("shm", 60); }

TEST(Branches, ChosenPerRankAndStepGiveTheUnshardedGradientsOverGloo) { check_cases("gloo", 12); }

// Six units, and an optional layer in one of them that only one rank uses.
struct OneOptionalLayer {
  std::vector<Branch> of_rank(int rank) const {
    std::vector<Branch> branches(6, Branch::everything);
    if (rank == 1) branches[3] = Branch::without_expert;
    return branches;
  }
};

// Whole gradients of the root and of two units at most, and the shards of all of them.
void expect_bounded_gradients(const ShardedModel& sharded) {
  const auto bytes = [&](int unit) {
    return engine::EngineAccess::of(sharded).units()[unit]->groups()[0]->layout().numel() *
           int64_t{sizeof(float)};
  };
  const auto& ledger = sharded.ledger();
  EXPECT_LE(ledger.peak(tiers::Purpose::gradients),
            ledger.held(tiers::Purpose::gradients) + bytes(0) + 2 * bytes(1));
}

TEST(Branches, ALayerUsedOnOneRankOnlyDelaysNoReduction) {
  run_ranks({.ranks = 2}, [](const World& world) {
    BranchCase spec;
    auto model = build_branches(spec);
    auto sharded = shard(model, world, branch_options(spec));
    const auto x = at::ones({3, kBranchWidth});
    for (int step = 0; step < 2; ++step) {
      sharded.zero_grad();
      sharded.ledger().reset_peaks();
      model(x, OneOptionalLayer().of_rank(world.rank())).sum().backward();
    }
    expect_bounded_gradients(sharded);
  });
}

TEST(Branches, ALayerUsedOnNoRankDelaysNoReduction) {
  run_ranks({.ranks = 2}, [](const World& world) {
    BranchCase spec;
    auto model = build_branches(spec);
    auto sharded = shard(model, world, branch_options(spec));
    model(at::ones({3, kBranchWidth}), std::vector<Branch>(6, Branch::without_expert))
        .sum()
        .backward();
    expect_bounded_gradients(sharded);
    EXPECT_GT(sharded.counters().overlapped, 6);
  });
}

// Autograd counts a graph's nodes per thread: those that another thread made come last, after
// the turn of their unit.
struct ThreadedImpl : Unit {
  ThreadedImpl() {
    below = register_module("below", Expert());
    side = register_module("side", Expert());
    main = register_module("main", Expert());
  }
  at::Tensor forward(at::Tensor x, bool in_thread) {
    x = below(x);
    const auto y = side(x);
    at::Tensor z;
    if (in_thread) {
      std::thread([&] { z = main(x); }).join();
    } else {
      z = main(x);
    }
    return y + z;
  }
  Expert below{nullptr}, side{nullptr}, main{nullptr};
};
FULLSHARD_UNIT(Threaded);

Threaded build_threaded() {
  Threaded model;
  at::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(9);
  for (auto& parameter : model->parameters()) parameter.normal_(0.0, 0.3, generator);
  return model;
}

at::Tensor threaded_loss(Threaded& model, int rank, bool in_thread) {
  auto generator = at::detail::createCPUGenerator(30 + rank);
  return model(at::randn({3, kBranchWidth}, generator), in_thread).pow(2).sum();
}

// `late` says which ranks make part of their graph in another thread.
template <class Late>
void check_late(const ShardOptions& options, int ranks, const Late& late) {
  auto plain = build_threaded();
  for (int rank = 0; rank < ranks; ++rank) (threaded_loss(plain, rank, false) / ranks).backward();
  WholeGradients expected;
  for (const auto& item : plain->named_parameters()) expected[item.key()] = item.value().grad();
  run_ranks({.ranks = ranks}, [&](const World& world) {
    auto model = build_threaded();
    auto sharded = shard(model, world, options);
    for (int step = 0; step < 2; ++step) {
      const auto reductions = sharded.counters().reductions;
      threaded_loss(model, world.rank(), late(world.rank())).backward();
      EXPECT_EQ(differing_pieces(sharded, expected), "");
      EXPECT_EQ(sharded.counters().reductions, reductions + 3 + 1) << "one of them twice";
      EXPECT_EQ(sharded.counters().live_numel, 0);
      sharded.zero_grad();
    }
  });
}

TEST(Branches, GradientsThatComeAfterTheirUnitsTurnAreAdded) {
  for (const int ranks : {2, 3}) {
    for (const int stage : {0, 2, 3}) {
      ShardOptions options;
      options.sharding.zero_stage = stage;
      options.share_host_copy = false;
      check_late(options, ranks, [](int) { return true; });
    }
  }
}

TEST(Branches, GradientsThatComeLateOnOneRankAreAdded) {
  for (const int stage : {0, 1, 2}) {
    ShardOptions options;
    options.sharding.zero_stage = stage;
    check_late(options, 3, [](int rank) { return rank == 1; });
  }
}

TEST(Branches, ABackwardOfARetainedGraphReducesInTheSameOrder) {
  run_ranks({.ranks = 2}, [](const World& world) {
    BranchCase spec;
    auto model = build_branches(spec);
    auto sharded = shard(model, world, branch_options(spec));
    auto loss = model(at::ones({3, kBranchWidth}) * (world.rank() + 1),
                      std::vector<Branch>(6, Branch::everything))
                    .pow(2)
                    .sum();
    loss.backward({}, /*retain_graph=*/true);
    const auto once = sharded.pieces()[0].gradient.clone();
    const auto overlapped = sharded.counters().overlapped;
    loss.backward();
    EXPECT_TRUE(at::allclose(sharded.pieces()[0].gradient, 2 * once));
    EXPECT_EQ(sharded.counters().overlapped, 2 * overlapped);
  });
}

}  // namespace
}  // namespace fullshard::testing
