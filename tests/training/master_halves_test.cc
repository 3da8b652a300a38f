// SPDX-License-Identifier: Apache-2.0
// Masters in halves behave as whole ones do: on the CPU, where they are asked for, as on a GPU.
#include <ATen/ops/full_like.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <stdexcept>
#include <vector>

#include "fullshard/base/float_halves.h"
#include "fullshard/engine/storage/master_halves.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/lamb.h"
#include "fullshard/optim/torch/torch_optimizer.h"
#include "tests/master_halves.h"
#include "tests/training/tiny_training.h"

namespace fullshard::testing {
namespace {

// Of bf16's step from 1 to 2: half of it is a tie, which goes up to an odd number in halves.
constexpr float kStep = 1.0f / 128;

TinyTransformer model_with_ties() {
  auto model = make_model({});
  at::NoGradGuard no_grad;
  model->blocks[0]->up->weight.fill_(1 + kStep / 2);
  return model;
}

template <class Body>
void for_every_stage(const Body& body) {
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(fmt::format("stage {}", stage));
    run_ranks({.ranks = 2}, [&](const World& world) {
      auto model = model_with_ties();
      auto sharded = shard(model, world, halves_options(stage, true));
      body(model, sharded, world, stage);
    });
  }
}

std::vector<at::Tensor> joined_masters(const ShardedModel& sharded) {
  std::vector<at::Tensor> masters;
  for (const auto& piece : sharded.pieces()) masters.push_back(piece.master.clone());
  return masters;
}

void expect_same_masters(const ShardedModel& sharded, const std::vector<at::Tensor>& expected) {
  const auto pieces = sharded.pieces();
  ASSERT_EQ(pieces.size(), expected.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_TRUE(at::equal(pieces[i].master, expected[i])) << pieces[i].name;
  }
}

TEST(Halves, HoldTheWholeMasters) {
  for_every_stage([](TinyTransformer&, ShardedModel& sharded, const World& world, int stage) {
    auto other = model_with_ties();
    const auto whole = shard(other, world, halves_options(stage, false));
    EXPECT_TRUE(are_in_halves(sharded));
    EXPECT_FALSE(are_in_halves(whole));
    expect_same_masters(sharded, joined_masters(whole));
  });
}

TEST(Halves, SaveTwoBytesOfEveryMasterBesideParametersThatStay) {
  for_every_stage([](TinyTransformer&, ShardedModel& sharded, const World& world, int stage) {
    auto other = model_with_ties();
    const auto whole = shard(other, world, halves_options(stage, false));
    const auto& expected = whole.ledger();
    const int64_t master = expected.held(tiers::Purpose::master);
    EXPECT_EQ(sharded.ledger().held(tiers::Purpose::master), stage < 3 ? master / 2 : master);
    EXPECT_EQ(sharded.ledger().held(tiers::Purpose::parameters),
              expected.held(tiers::Purpose::parameters));
  });
}

// Ranks that hold parameters whole see each other's masters with the same rounding.
TEST(Halves, AreSeenAlikeByAllRanks) {
  for_every_stage([](TinyTransformer& model, ShardedModel& sharded, const World&, int) {
    const auto full = sharded.gather_full();
    const auto& tied = model->blocks[0]->up->weight;
    EXPECT_TRUE(at::equal(tied, at::full_like(tied, 1 + kStep)));
    const auto expected = model_with_ties()->named_parameters();
    for (const auto& item : model->named_parameters()) {
      EXPECT_TRUE(at::equal(item.value(), engine::nearest_halves(expected[item.key()].detach())))
          << item.key();
    }
  });
}

TEST(Halves, KeepTheBitsOfWhatAScopeDidNotWrite) {
  for_every_stage([](TinyTransformer& model, ShardedModel& sharded, const World&, int) {
    auto expected = joined_masters(sharded);
    const auto pieces = sharded.pieces();
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].name == "block1.up.weight") expected[i].fill_(3);
    }
    auto full = sharded.gather_full({.write_back = true});
    {
      at::NoGradGuard no_grad;
      model->blocks[1]->up->weight.fill_(3);
    }
    full.close();
    EXPECT_TRUE(are_in_halves(sharded));
    expect_same_masters(sharded, expected);
  });
}

TEST(Halves, OfAScopeThatFailedGoOn) {
  for_every_stage([](TinyTransformer&, ShardedModel& sharded, const World&, int) {
    const auto expected = joined_masters(sharded);
    EXPECT_THROW(
        {
          const auto full = sharded.gather_full({.write_back = true});
          throw std::runtime_error("inside");
        },
        std::runtime_error);
    EXPECT_TRUE(are_in_halves(sharded));
    expect_same_masters(sharded, expected);
  });
}

// p -= gradient / 4, with masters as they come.
void descend(const std::vector<PieceView>& pieces, double) {
  for (const auto& piece : pieces) {
    if (piece.lower.defined()) {
      for (int64_t i = 0; i < piece.numel(); ++i) {
        auto& nearest = piece.shown.data_ptr<at::BFloat16>()[i];
        auto& lower = piece.lower.data_ptr<int16_t>()[i];
        const float master = base::joined({nearest.x, static_cast<uint16_t>(lower)});
        const auto halves = base::halves_of(master - piece.gradient.data_ptr<float>()[i] / 4);
        nearest.x = halves.nearest;
        lower = static_cast<int16_t>(halves.lower);
      }
    } else {
      piece.master.sub_(piece.gradient / 4);
    }
  }
}

std::vector<at::Tensor> descended(const World& world, int stage, bool in_halves,
                                  ShardedModel::Shown shown) {
  auto model = make_model({});
  auto sharded = shard(model, world, halves_options(stage, in_halves));
  for (int step = 0; step < 3; ++step) {
    model(make_batch({}, step, 0, world.rank())).backward();
    sharded.update(descend, shown);
    sharded.zero_grad();
  }
  EXPECT_EQ(are_in_halves(sharded), shown == ShardedModel::Shown::written_in_halves);
  return joined_masters(sharded);
}

// No value of this run is a tie, so the same bf16 values are computed with.
TEST(Halves, AreUpdatedInPlaceOrMadeWholeForGood) {
  using Shown = ShardedModel::Shown;
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(fmt::format("stage {}", stage));
    run_ranks({.ranks = 2}, [&](const World& world) {
      const auto whole = descended(world, stage, false, Shown::written_here);
      for (const auto shown : {Shown::written_in_halves, Shown::written_here}) {
        const auto found = descended(world, stage, true, shown);
        ASSERT_EQ(found.size(), whole.size());
        for (size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(at::equal(found[i], whole[i])) << i;
      }
    });
  }
}

template <class Kind, class Options>
std::vector<at::Tensor> stepped(const World& world, int stage, bool in_halves,
                                const Options& options) {
  auto model = make_model({});
  auto sharded = shard(model, world, halves_options(stage, in_halves));
  Kind optimizer(sharded, options);
  for (int step = 0; step < 3; ++step) {
    model(make_batch({}, step, 0, world.rank())).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  EXPECT_FALSE(are_in_halves(sharded));
  return joined_masters(sharded);
}

// LAMB reads masters before it updates them.
TEST(Halves, AreMadeWholeByOptimizersOfTheCpu) {
  for (const int stage : {1, 3}) {
    SCOPED_TRACE(fmt::format("stage {}", stage));
    run_ranks({.ranks = 2}, [&](const World& world) {
      const auto expect_alike = [&]<class Kind>(const auto& options) {
        const auto whole = stepped<Kind>(world, stage, false, options);
        const auto found = stepped<Kind>(world, stage, true, options);
        ASSERT_EQ(found.size(), whole.size());
        for (size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(at::equal(found[i], whole[i])) << i;
      };
      expect_alike.template operator()<AdamW>(AdamWOptions{});
      expect_alike.template operator()<Lamb>(LambOptions{});
    });
  }
}

TEST(Halves, AreMadeWholeForATorchOptimizer) {
  for_every_stage([](TinyTransformer& model, ShardedModel& sharded, const World& world, int) {
    PieceParameters parameters(sharded);
    EXPECT_FALSE(are_in_halves(sharded));
    torch::optim::SGD optimizer(parameters.tensors(), 0.25);
    const auto before = joined_masters(sharded);
    model(make_batch({}, 0, 0, world.rank())).backward();
    auto expected = before;
    const auto pieces = sharded.pieces();
    for (size_t i = 0; i < pieces.size(); ++i) expected[i].sub_(pieces[i].gradient, 0.25);
    parameters.step(optimizer);
    expect_same_masters(sharded, expected);
  });
}

TEST(Halves, AreOnlyForFp32MastersAndGradientsOfBf16) {
  auto options = halves_options(0, true);
  const auto shows_halves = [&] {
    auto model = make_model({});
    return are_in_halves(shard(model, World::single(), options));
  };
  EXPECT_TRUE(shows_halves());
  options.gradient_dtype = at::kBFloat16;
  EXPECT_FALSE(shows_halves());
  options.gradient_dtype = {};
  options.param_dtype = at::kHalf;
  EXPECT_FALSE(shows_halves());
  options.param_dtype = {};
  EXPECT_FALSE(shows_halves());
  options.param_dtype = at::kBFloat16;
  options.master_in_halves = {};  // the CPU's default
  EXPECT_FALSE(shows_halves());
}

}  // namespace
}  // namespace fullshard::testing
