// SPDX-License-Identifier: Apache-2.0
// Models of random shapes, saved by some ranks under some strategy and loaded by others under
// another: every element is where it belongs.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "fullshard/checkpoint/model_tensors.h"
#include "fullshard/engine/engine_access.h"
#include "tests/checkpoint/saved_state.h"

namespace fullshard::testing {
namespace {

struct Tensors : torch::nn::Module {
  Tensors(std::mt19937& random, int count, int64_t most) {
    for (int i = 0; i < count; ++i) {
      std::vector<int64_t> shape;
      for (uint32_t dims = random() % 3 + 1; shape.size() < dims;) {
        shape.push_back(static_cast<int64_t>(random() % static_cast<uint32_t>(most)) + 1);
      }
      register_parameter("p" + std::to_string(i), at::zeros(shape), random() % 5 != 0);
    }
  }
};

struct RandomBlockImpl : Unit {
  explicit RandomBlockImpl(std::mt19937& random) {
    register_module("inner", std::make_shared<Tensors>(random, 1 + random() % 4, 9));
  }
  at::Tensor forward(at::Tensor x) { return x; }
};
FULLSHARD_UNIT(RandomBlock);

struct RandomModelImpl : Unit {
  explicit RandomModelImpl(uint32_t seed) {
    std::mt19937 random(seed);
    for (uint32_t i = 0, count = random() % 4; i < count; ++i) {
      register_module("block" + std::to_string(i), RandomBlock(random));
    }
    // One that is always trained: an optimizer needs something.
    register_parameter("always", at::zeros({static_cast<int64_t>(random() % 7) + 1}));
    register_module("own", std::make_shared<Tensors>(random, random() % 3, 30));
  }
  at::Tensor forward(at::Tensor x) { return x; }
};
FULLSHARD_UNIT(RandomModel);

// Element `i` of a tensor; exact in fp32.
at::Tensor values_of(const std::string& what, int64_t begin, int64_t numel) {
  const auto base = static_cast<double>(std::hash<std::string>{}(what) % 4096);
  return at::arange(begin, begin + numel, at::kFloat) + base;
}

struct RankLayout {
  RankLayout(const World& world, const Way& way, uint32_t seed)
      : model(seed), sharded(shard(model, world, way.options)), optimizer(sharded, {}) {}

  // Calls use(what, begin, values) for every part that this rank holds.
  void for_each(const std::function<void(const std::string&, int64_t, at::Tensor)>& use) {
    const at::NoGradGuard no_grad;
    for (const auto& tensor : checkpoint::model_tensors(engine::EngineAccess::of(sharded))) {
      const auto part = tensor.own_part();
      if (part) use("weights of " + tensor.names[0], part->begin, part->values);
    }
    for (const auto& piece : sharded.pieces()) {
      for (size_t k = 0; k < optimizer.state_names().size(); ++k) {
        use(optimizer.state_names()[k] + " of " + piece.name, piece.begin,
            optimizer.state(piece.group, static_cast<int>(k))
                .narrow(0, piece.offset, piece.numel()));
      }
    }
  }

  RandomModel model;
  ShardedModel sharded;
  AdamW optimizer;
};

TEST(RandomModels, EveryElementComesBackUnderAnyLayout) {
  const auto ways = all_ways();
  std::mt19937 random(4);
  for (uint32_t seed = 0; seed < 24; ++seed) {
    Way saving = ways[random() % ways.size()];
    Way loading = ways[random() % ways.size()];
    saving.options.ignored_modules = loading.options.ignored_modules = "";
    SCOPED_TRACE(fmt::format("model {}, {} loaded as {}", seed, saving.name, loading.name));
    const CheckpointsFolder folder;
    run_ranks({.ranks = saving.ranks}, [&](const World& world) {
      RankLayout run(world, saving, seed);
      run.for_each([](const std::string& what, int64_t begin, at::Tensor values) {
        values.copy_(values_of(what, begin, values.numel()));
      });
      world.communicator().barrier("filled");
      save_checkpoint(folder / "one", run.sharded, run.optimizer, {});
    });
    run_ranks({.ranks = loading.ranks}, [&](const World& world) {
      RankLayout run(world, loading, seed);
      load_checkpoint(folder / "one", run.sharded, run.optimizer);
      run.for_each([](const std::string& what, int64_t begin, at::Tensor values) {
        EXPECT_TRUE(at::equal(values, values_of(what, begin, values.numel()))) << what;
      });
    });
  }
}

}  // namespace
}  // namespace fullshard::testing
