// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/full_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "fullshard/base/error.h"
#include "fullshard/checkpoint/model_io.h"
#include "fullshard/optim/adamw.h"
#include "tests/checkpoint/memory_source.h"
#include "tests/checkpoint/small_model.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;

Error error_from(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error("no error");
}

// What `head.weight` shows is the embedding; the table was never in a file.
Values expected_values(Values values, at::ScalarType dtype) {
  for (auto& [name, tensor] : values) {
    const bool is_cast = name != "scale" && !name.starts_with("aside");
    if (is_cast) tensor = tensor.to(dtype);
  }
  values["head.weight"] = values.at("embedding.weight");
  values["table"] = at::arange(5).to(at::kFloat);
  return values;
}

void expect_same(const Values& actual, const Values& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    EXPECT_TRUE(at::equal(actual.at(name), tensor)) << name;
  }
}

ShardedModel load_deferred(SmallModel& model, const World& world, const ShardOptions& options,
                           const Values& values = small_values()) {
  model = deferred<SmallModel>();
  auto sharded = shard(model, world, options);
  load_weights(MemorySource(values), sharded);
  return sharded;
}

TEST(LoadWeights, GivesADeferredModelTheFilesValuesUnderEveryStrategy) {
  for (const auto& plain : all_ways()) {
    for (const auto& way : {plain, in_bf16(plain)}) {
      SCOPED_TRACE(way.name);
      run_ranks({.ranks = way.ranks}, [&](const World& world) {
        SmallModel model{nullptr};
        auto sharded = load_deferred(model, world, way.options);
        expect_same(whole_values(model, sharded),
                    expected_values(small_values(), way.options.param_dtype.value_or(at::kFloat)));
      });
    }
  }
}

TEST(LoadWeights, KeepsThePrecisionOfTheFileInMasters) {
  for (const auto& plain : all_ways()) {
    const auto way = in_bf16(plain);
    SCOPED_TRACE(way.name);
    run_ranks({.ranks = way.ranks}, [&](const World& world) {
      SmallModel model{nullptr};
      const auto sharded = load_deferred(model, world, way.options);
      for (const auto& piece : sharded.pieces()) {
        const auto values = small_values().at(piece.name);
        EXPECT_TRUE(
            at::equal(piece.master, values.view({-1}).narrow(0, piece.begin, piece.numel())))
            << piece.name;
      }
    });
  }
}

TEST(LoadWeights, RoundsOnceIntoBf16Masters) {
  run_ranks({.ranks = 2}, [](const World& world) {
    ShardOptions options;
    options.param_dtype = at::kBFloat16;
    options.master_dtype = at::kBFloat16;
    options.ignored_modules = "aside";
    SmallModel model{nullptr};
    auto sharded = load_deferred(model, world, options);
    expect_same(whole_values(model, sharded), expected_values(small_values(), at::kBFloat16));
  });
}

// Each element of a sharded tensor by one rank of every shard group; whole ones by every rank.
TEST(LoadWeights, ReadsTheModelOncePerShardGroupAndNothingElse) {
  for (const auto& way : all_ways()) {
    SCOPED_TRACE(way.name);
    std::mutex mutex;
    std::map<int, std::map<std::string, std::vector<engine::Interval>>> read;  // by replica
    run_ranks({.ranks = way.ranks}, [&](const World& world) {
      const MemorySource source(small_values());
      auto model = deferred<SmallModel>();
      auto sharded = shard(model, world, way.options);
      load_weights(source, sharded);
      const std::lock_guard lock(mutex);
      for (const auto& [name, ranges] : source.ranges()) {
        const auto numel = small_values().at(name).numel();
        if (name == "scale" || name.starts_with("aside")) {
          EXPECT_TRUE(cover_once(ranges, numel)) << name;
          continue;
        }
        auto& all = read[sharded.mesh().replica()][name];
        all.insert(all.end(), ranges.begin(), ranges.end());
      }
    });
    for (const auto& [replica, tensors] : read) {
      EXPECT_EQ(tensors.size(), small_values().size() - 3);
      for (const auto& [name, ranges] : tensors) {
        EXPECT_TRUE(cover_once(ranges, small_values().at(name).numel())) << name;
      }
    }
  }
}

TEST(LoadWeights, ReplacesTheValuesOfAnOrdinaryModelToo) {
  run_ranks({.ranks = 2}, [](const World& world) {
    ShardOptions options;
    options.ignored_modules = "aside";
    options.sync_module_states = true;  // each thread draws other values
    SmallModel model;
    auto sharded = shard(model, world, options);
    const auto before = sharded.counters().steps;
    load_weights(MemorySource(small_values()), sharded);
    expect_same(whole_values(model, sharded), expected_values(small_values(), at::kFloat));
    load_weights(MemorySource(small_values(9)), sharded);
    expect_same(whole_values(model, sharded), expected_values(small_values(9), at::kFloat));
    EXPECT_EQ(sharded.counters().steps, before);
  });
}

struct Trained {
  std::vector<float> losses;
  Values values;
};

Trained train(SmallModel& model, ShardedModel& sharded, const World& world) {
  Trained trained;
  AdamW optimizer(sharded, {.lr = 0.05});
  for (int step = 0; step < 3; ++step) {
    auto loss = model(small_batch(step, world.rank()));
    trained.losses.push_back(loss.item<float>());
    loss.backward();
    sharded.clip_grad_norm(0.5);
    optimizer.step();
    optimizer.zero_grad();
  }
  trained.values = whole_values(model, sharded);
  return trained;
}

SmallModel ordinary_model() {
  SmallModel model;
  at::NoGradGuard no_grad;
  const auto values = small_values();
  for (auto& item : model->named_parameters()) {
    if (item.key() != "head.weight") item.value().copy_(values.at(item.key()));
  }
  model->scale.copy_(values.at("scale"));
  return model;
}

TEST(LoadWeights, TrainsAsTheOrdinaryPathDoesBitForBit) {
  for (const auto& plain : all_ways()) {
    for (const auto& way : {plain, in_bf16(plain)}) {
      SCOPED_TRACE(way.name);
      run_ranks({.ranks = way.ranks}, [&](const World& world) {
        auto ordinary = ordinary_model();
        auto sharded_ordinary = shard(ordinary, world, way.options);
        const auto expected = train(ordinary, sharded_ordinary, world);
        SmallModel model{nullptr};
        auto sharded = load_deferred(model, world, way.options);
        const auto actual = train(model, sharded, world);
        EXPECT_EQ(actual.losses, expected.losses);
        expect_same(actual.values, expected.values);
      });
    }
  }
}

TEST(LoadWeights, FindsATiedParameterUnderAnyOfItsNames) {
  run_ranks({.ranks = 2}, [](const World& world) {
    auto values = small_values();
    values["head.weight"] = values.at("embedding.weight");
    values.erase("embedding.weight");
    SmallModel model{nullptr};
    ShardOptions options;
    auto sharded = load_deferred(model, world, options, values);
    auto full = sharded.gather_full();
    EXPECT_TRUE(at::equal(model->embedding->weight, values.at("head.weight")));
  });
}

TEST(LoadWeights, BothNamesOfATiedParameterMayBeThere) {
  auto values = small_values();
  values["head.weight"] = at::full_like(values.at("embedding.weight"), 7);
  SmallModel model{nullptr};
  auto sharded = load_deferred(model, World::single(), {}, values);
  EXPECT_TRUE(at::equal(model->head, small_values().at("embedding.weight")));
}

stored::NameInFile hugging_names(const std::string& name) {
  if (name == "table") return {};
  return {"model." + name, name == "block1.up.weight" || name == "aside.weight", {"old." + name}};
}

Values hugging_values() {
  Values values;
  for (const auto& [name, tensor] : small_values()) {
    const auto in_file = hugging_names(name);
    const auto& file_name = name == "block0.up.bias" ? in_file.others[0] : in_file.name;
    values[file_name] = in_file.transposed ? tensor.t().contiguous() : tensor;
  }
  values["rotary.table"] = at::ones({3});
  return values;
}

TEST(LoadWeights, FollowsTheNamesOfTheFileAndReadsTransposedOnesExactly) {
  for (const auto& way : all_ways()) {
    SCOPED_TRACE(way.name);
    std::mutex mutex;
    std::vector<engine::Interval> first_replica;
    run_ranks({.ranks = way.ranks}, [&](const World& world) {
      const MemorySource source(hugging_values());
      auto model = deferred<SmallModel>();
      auto sharded = shard(model, world, way.options);
      load_weights(source, sharded, {.names = hugging_names, .is_ignored = [](const auto& name) {
                                       return name == "rotary.table";
                                     }});
      expect_same(whole_values(model, sharded), expected_values(small_values(), at::kFloat));
      EXPECT_EQ(source.ranges().count("rotary.table"), 0);
      if (sharded.mesh().replica() != 0) return;
      const std::lock_guard lock(mutex);
      const auto ranges = source.ranges();
      const auto found = ranges.find("model.block1.up.weight");
      if (found == ranges.end()) return;
      first_replica.insert(first_replica.end(), found->second.begin(), found->second.end());
    });
    EXPECT_TRUE(cover_once(first_replica, 35));
  }
}

TEST(LoadWeights, ListsEverythingThatDoesNotFitAndChangesNothing) {
  for (const int ranks : {1, 2}) {
    run_ranks({.ranks = ranks}, [](const World& world) {
      auto values = small_values(9);
      values.erase("block0.down.bias");
      values.erase("embedding.weight");
      values["block1.gate"] = at::ones({4});
      values["block1.up.weight"] = at::ones({5, 7});
      values["block1.up.bias"] = at::ones({7}, at::kChar);
      values["surplus"] = at::ones({2, 2});
      SmallModel model{nullptr};
      auto sharded = load_deferred(model, world, {});
      const auto before = master_values(sharded);
      const auto error = error_from([&] { load_weights(MemorySource(values), sharded); });
      EXPECT_EQ(error.kind(), ErrorKind::input);
      EXPECT_EQ(std::string(error.what()),
                "memory: the weights do not fit the model; is it the right config.json for them?\n"
                "  missing: embedding.weight or head.weight [11, 5]\n"
                "  missing: block0.down.bias [5]\n"
                "  another shape: block1.gate is [4], expected [5]\n"
                "  another shape: block1.up.weight is [5, 7], expected [7, 5]\n"
                "  another dtype: block1.up.bias is Char, expected one like Float\n"
                "  not expected: surplus [2, 2]");
      expect_same(master_values(sharded), before);
      EXPECT_NO_THROW(model(small_batch(0, 0)));
    });
  }
}

TEST(LoadWeights, WhatDoesNotFitOnOneRankIsThrownByAll) {
  run_ranks({.ranks = 3}, [](const World& world) {
    auto values = small_values();
    if (world.rank() == 1) values.erase("block0.gate");
    auto model = deferred<SmallModel>();
    auto sharded = shard(model, world);
    const auto error = error_from([&] { load_weights(MemorySource(values), sharded); });
    EXPECT_EQ(error.kind(), ErrorKind::input);
    EXPECT_THAT(error.what(), HasSubstr("rank 1: memory: "));
    EXPECT_THAT(error.what(), HasSubstr("missing: block0.gate [5]"));
  });
}

TEST(LoadWeights, AReadThatFailsOnOneRankFailsOnAllAndLeavesTheModelWithoutValues) {
  for (const bool share : {true, false}) {
    run_ranks({.ranks = 3}, [&](const World& world) {
      ShardOptions options;
      options.share_host_copy = share;
      SmallModel model{nullptr};
      auto sharded = load_deferred(model, world, options);
      MemorySource source(small_values(9));
      if (world.rank() == 2) source.broken = "scale";
      const auto error = error_from([&] { load_weights(source, sharded); });
      EXPECT_STREQ(error.what(), "rank 2: memory: tensor 'scale' cannot be read");
      EXPECT_EQ(error.kind(), ErrorKind::input);
      EXPECT_THAT(error_from([&] { model(small_batch(0, 0)); }).what(),
                  HasSubstr("have no values yet"));
      source.broken.clear();
      load_weights(source, sharded);
      EXPECT_NO_THROW(model(small_batch(0, 0)));
    });
  }
}

TEST(LoadWeights, InsideAGatherScopeIsAnError) {
  SmallModel model;
  auto sharded = shard(model, World::single());
  auto full = sharded.gather_full();
  EXPECT_THAT(error_from([&] { load_weights(MemorySource(small_values()), sharded); }).what(),
              HasSubstr("load_weights inside an open gather_full scope"));
}

TEST(LoadWeights, ADeferredBufferMustBeInTheFileAndOthersNeedNot) {
  auto values = small_values();
  values.erase("scale");
  SmallModel ordinary;
  auto sharded_ordinary = shard(ordinary, World::single());
  load_weights(MemorySource(values), sharded_ordinary);
  EXPECT_TRUE(at::equal(ordinary->scale, at::ones({5})));

  auto model = deferred<SmallModel>();
  auto sharded = shard(model, World::single());
  EXPECT_THAT(error_from([&] { load_weights(MemorySource(values), sharded); }).what(),
              HasSubstr("\n  missing: scale [5]"));
}

}  // namespace
}  // namespace fullshard::testing
