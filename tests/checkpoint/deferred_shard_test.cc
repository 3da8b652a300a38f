// SPDX-License-Identifier: Apache-2.0
// shard() of models that were built without memory.
#include <ATen/ops/full_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/checkpoint/model_io.h"
#include "fullshard/engine/engine_access.h"
#include "tests/checkpoint/as_tensor.h"
#include "tests/checkpoint/memory_source.h"
#include "tests/checkpoint/small_model.h"
#include "tests/errors.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;

TEST(DeferredShard, AForwardBeforeAnyValuesSaysWhatToCall) {
  for (const auto& way : all_ways()) {
    run_ranks({.ranks = way.ranks}, [&](const World& world) {
      auto model = deferred<SmallModel>();
      auto sharded = shard(model, world, way.options);
      EXPECT_FALSE(is_deferred(*model));
      EXPECT_EQ(message_of([&] { model(small_batch(0, 0)); }),
                "forward of the root unit: the model was built deferred and its parameters have no "
                "values yet; call load_weights or initialise_weights first, or write all of them "
                "in a gather_full scope with write_back")
          << way.name;
      EXPECT_THAT(message_of([&] { save_weights("/nowhere", sharded); }),
                  HasSubstr("save_weights: the model was built deferred"));
    });
  }
}

TEST(DeferredShard, ValuesWrittenIntoAllUnitsCount) {
  run_ranks({.ranks = 2}, [](const World& world) {
    auto model = deferred<SmallModel>();
    auto sharded = shard(model, world);
    auto some = sharded.gather_full({.write_back = true, .units = {"block0"}});
    some.close();
    EXPECT_THAT(message_of([&] { model(small_batch(0, 0)); }), HasSubstr("no values yet"));
    auto full = sharded.gather_full({.write_back = true});
    {
      at::NoGradGuard no_grad;
      for (auto& parameter : model->parameters()) parameter.fill_(0.5);
    }
    full.close();
    EXPECT_NO_THROW(model(small_batch(0, 0)));
  });
}

TEST(DeferredShard, MakesIgnoredModulesAndBuffersWholeWithZeros) {
  run_ranks({.ranks = 2}, [](const World& world) {
    auto model = deferred<SmallModel>();
    ShardOptions options;
    options.ignored_modules = "aside";
    auto sharded = shard(model, world, options);
    EXPECT_TRUE(at::equal(model->aside->weight, at::zeros({5, 5})));
    EXPECT_TRUE(model->aside->weight.requires_grad());
    EXPECT_TRUE(at::equal(model->scale, at::zeros({5})));
    EXPECT_TRUE(at::equal(model->table, at::arange(5).to(at::kFloat)));
    EXPECT_THAT(engine::EngineAccess::of(sharded).plan().deferred_buffers,
                ::testing::ElementsAre("scale"));
  });
}

TEST(DeferredShard, KeepsTheValuesOfWhatIsNotDeferred) {
  run_ranks({.ranks = 2}, [](const World& world) {
    auto model = deferred<SmallModel>();
    materialise(model->blocks[0]->gate);
    model->blocks[0]->gate.fill_(3);
    auto sharded = shard(model, world);
    auto full = sharded.gather_full();
    EXPECT_TRUE(at::equal(model->blocks[0]->gate, at::full_like(model->blocks[0]->gate, 3)));
    EXPECT_TRUE(at::equal(model->blocks[1]->gate, at::zeros({5})));
  });
}

TEST(DeferredShard, TakesRank0sValuesWhereOnlyRank0HasAny) {
  for (const auto& plain : all_ways()) {
    auto way = plain;
    way.options.sync_module_states = true;
    way.options.ignored_modules.clear();
    SCOPED_TRACE(way.name);
    const SmallModel original;
    run_ranks({.ranks = way.ranks}, [&](const World& world) {
      SmallModel model{nullptr};
      if (world.rank() == 0) {
        model = SmallModel();
        at::NoGradGuard no_grad;
        auto parameters = model->named_parameters();
        for (const auto& item : original->named_parameters()) {
          parameters[item.key()].copy_(item.value());
        }
        model->scale.fill_(4);
      } else {
        model = deferred<SmallModel>();
      }
      auto sharded = shard(model, world, way.options);
      const auto values = whole_values(model, sharded);
      for (const auto& item : original->named_parameters()) {
        EXPECT_TRUE(at::equal(values.at(item.key()), item.value())) << item.key();
      }
      EXPECT_TRUE(at::equal(values.at("scale"), at::ones({5}) * 4));
      EXPECT_NO_THROW(model(small_batch(0, 0)));
    });
  }
}

TEST(DeferredShard, TakesNothingFromARank0WithoutValues) {
  for (const int ranks : {1, 2}) {
    run_ranks({.ranks = ranks}, [](const World& world) {
      auto model = deferred<SmallModel>();
      auto sharded = shard(model, world, {.sync_module_states = true});
      EXPECT_FALSE(sharded.options().sync_module_states);
      EXPECT_THAT(message_of([&] { model(small_batch(0, 0)); }),
                  HasSubstr("the model was built deferred and its parameters have no values yet"));
    });
  }
}

TEST(DeferredShard, RanksDeferAlike) {
  run_ranks({.ranks = 2}, [](const World& world) {
    auto model = world.rank() == 0 ? SmallModel() : deferred<SmallModel>();
    EXPECT_THAT(message_of([&] { shard(model, world, {.sync_module_states = false}); }),
                HasSubstr("rank 0 has embedding.weight [11, 5] Float in the root unit, rank 1 has "
                          "embedding.weight [11, 5] Float deferred in the root unit"));
  });
  run_ranks({.ranks = 2}, [](const World& world) {
    auto model = world.rank() == 1 ? SmallModel() : deferred<SmallModel>();
    EXPECT_THAT(message_of([&] { shard(model, world); }),
                HasSubstr("rank 0 has embedding.weight [11, 5] Float deferred in the root unit, "
                          "rank 1 has embedding.weight [11, 5] Float in the root unit"));
  });
}

struct HugeBlockImpl : Unit {
  explicit HugeBlockImpl(int64_t width) {
    up = register_module("up", torch::nn::Linear(width, width));
  }
  at::Tensor forward(at::Tensor x) { return up(x); }
  torch::nn::Linear up{nullptr};
};
FULLSHARD_UNIT(HugeBlock);

struct HugeModelImpl : Unit {
  explicit HugeModelImpl(int64_t width, int layers) {
    for (int i = 0; i < layers; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), HugeBlock(width)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& block : blocks) x = block(x);
    return x;
  }
  std::vector<HugeBlock> blocks;
};
FULLSHARD_UNIT(HugeModel);

// Knows shapes only: every element has the value of its place, modulo 1000.
class CountingSource : public TensorSource {
 public:
  CountingSource(int64_t width, int layers) {
    for (int i = 0; i < layers; ++i) {
      const auto block = "block" + std::to_string(i);
      stored_.push_back({block + ".up.bias", {width}, at::kFloat, "counting"});
      stored_.push_back({block + ".up.weight", {width, width}, at::kFloat, "counting"});
    }
  }
  const std::vector<StoredTensor>& tensors() const override { return stored_; }
  void read(const std::string&, int64_t begin, ElementSpan out) const override {
    as_tensor(out).copy_(at::arange(begin, begin + out.numel, at::kLong).remainder(1000));
    numel += out.numel;
  }
  mutable int64_t numel = 0;

 private:
  std::vector<StoredTensor> stored_;
};

// 16 TiB on 262,144 ranks: a rank holds 64 MiB of it, and never more.
TEST(DeferredShard, AModelThatNoMachineHoldsIsShardedAndLoadedByItsRanks) {
  constexpr int64_t kWidth = int64_t{1} << 20;
  constexpr int kLayers = 4, kRanks = 1 << 18;
  auto model = deferred<HugeModel>(kWidth, kLayers);
  auto sharded = shard(model, World::fake(kRanks, 5));
  int64_t own_numel = 0, padded_numel = 0;
  for (const auto& piece : sharded.pieces()) own_numel += piece.numel();
  for (int group = 0; group < sharded.num_groups(); ++group) {
    padded_numel += sharded.shard_numel(group);
  }
  EXPECT_EQ(padded_numel, kLayers * (kWidth * kWidth / kRanks + 4));
  const CountingSource source(kWidth, kLayers);
  load_weights(source, sharded);
  EXPECT_EQ(source.numel, own_numel);
  EXPECT_EQ(sharded.ledger().peak_total(), 4 * padded_numel);
  EXPECT_LT(sharded.ledger().peak_total(), 65 * kMiB);
  for (const auto& piece : sharded.pieces()) {
    EXPECT_EQ(piece.master[0].item<float>(), static_cast<float>(piece.begin % 1000));
    EXPECT_EQ(piece.master[-1].item<float>(), static_cast<float>((piece.end - 1) % 1000));
  }
}

}  // namespace
}  // namespace fullshard::testing
