// SPDX-License-Identifier: Apache-2.0
// Recomputation and offload of activations change what is held, never what comes out.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstring>

#include "fullshard/engine/engine_access.h"
#include "fullshard/optim/adamw.h"
#include "tests/training/tiny_training.h"

namespace fullshard::testing {
namespace {

enum class Recompute { off, on };
enum class Offload { off, on };

struct Setting {
  int ranks = 1;
  Strategy strategy = Strategy::full_shard;
  Recompute recompute = Recompute::off;
  Offload offload = Offload::off;

  std::string text() const {
    return fmt::format("{} ranks, {}{}{}", ranks, name_of(strategy),
                       recompute == Recompute::on ? ", recompute" : "",
                       offload == Offload::on ? ", offload" : "");
  }
};

struct Result {
  std::map<std::string, at::Tensor> parameters;
  std::vector<double> losses;
  int64_t unshards = 0;
  int64_t gathers = 0;      // collectives
  int64_t activations = 0;  // most bytes stored
};

ShardOptions options_of(const Setting& setting, const RecomputePolicy& policy) {
  ShardOptions options;
  options.sharding.strategy = setting.strategy;
  if (setting.recompute == Recompute::on) options.recompute = policy;
  options.offload_activations = setting.offload == Offload::on;
  options.offload_activations_min_bytes = 0;
  return options;
}

// Three steps; what rank 0 saw.
template <class Make, class Loss>
Result train(const Setting& setting, const RecomputePolicy& policy, const Make& make,
             const Loss& loss_of) {
  Result result;
  run_ranks({.ranks = setting.ranks}, [&](const World& world) {
    auto model = make();
    auto sharded = shard(model, world, options_of(setting, policy));
    AdamW optimizer(sharded, {});
    Result own;
    for (int step = 0; step < 3; ++step) {
      auto loss = loss_of(model, step, world.rank());
      own.losses.push_back(loss.template item<double>());
      loss.backward();
      EXPECT_EQ(sharded.ledger().held(tiers::Purpose::activations, tiers::Tier::host), 0);
      EXPECT_EQ(sharded.counters().live_numel, 0);
      optimizer.step();
      optimizer.zero_grad();
    }
    own.unshards = sharded.counters().unshards;
    own.gathers = sharded.recorder().totals(Operation::all_gather).calls;
    own.activations = sharded.ledger().peak(tiers::Purpose::activations, tiers::Tier::host);
    auto full = sharded.gather_full();
    for (const auto& item : model->named_parameters()) {
      own.parameters[item.key()] = item.value().detach().clone();
    }
    if (world.rank() == 0) result = std::move(own);
  });
  return result;
}

void expect_same_bits(const Result& actual, const Result& expected) {
  EXPECT_EQ(actual.losses, expected.losses);
  ASSERT_EQ(actual.parameters.size(), expected.parameters.size());
  for (const auto& [name, values] : expected.parameters) {
    const auto& own = actual.parameters.at(name);
    ASSERT_EQ(own.nbytes(), values.nbytes());
    EXPECT_EQ(std::memcmp(own.const_data_ptr(), values.const_data_ptr(), own.nbytes()), 0) << name;
  }
}

constexpr Strategy kStrategies[] = {Strategy::full_shard, Strategy::shard_grad_op,
                                    Strategy::no_shard};

// Every strategy with recomputation, offload and both, against neither.
template <class Make, class Loss>
void check_case(std::initializer_list<int> worlds, const RecomputePolicy& policy, const Make& make,
                const Loss& loss) {
  for (const int ranks : worlds) {
    for (const Strategy strategy : kStrategies) {
      const auto plain = train({ranks, strategy}, policy, make, loss);
      EXPECT_EQ(plain.activations, 0);
      for (const auto& [recompute, offload] :
           {std::pair(Recompute::on, Offload::off), std::pair(Recompute::off, Offload::on),
            std::pair(Recompute::on, Offload::on)}) {
        const Setting setting{ranks, strategy, recompute, offload};
        SCOPED_TRACE(setting.text());
        const auto result = train(setting, policy, make, loss);
        expect_same_bits(result, plain);
        EXPECT_EQ(result.unshards, plain.unshards);
        EXPECT_EQ(result.gathers, plain.gathers);
        EXPECT_EQ(result.activations > 0, offload == Offload::on);
      }
    }
  }
}

TinyTransformer tiny(int64_t layers) {
  TrainingOptions options;
  options.model.layers = layers;
  return make_model(options);
}

at::Tensor tiny_loss(TinyTransformer& model, int step, int rank) {
  return model(make_batch({}, step, 0, rank));
}

TEST(RecomputeTraining, GivesTheSameBitsWithoutASecondGather) {
  check_case(
      {1, 2, 3}, RecomputePolicy::all(), [] { return tiny(2); }, tiny_loss);
}

TEST(RecomputeTraining, StoresOneInputPerRecomputedBlock) {
  constexpr int64_t kInputBytes = 2 * 4 * 6 * 4;  // batch, length - 1, width, fp32
  for (const int ranks : {1, 2}) {
    const auto stored = [&](int64_t layers, Recompute recompute) {
      const Setting setting{ranks, Strategy::full_shard, recompute, Offload::on};
      return train(
                 setting, RecomputePolicy::classes({"TinyBlock"}), [&] { return tiny(layers); },
                 tiny_loss)
          .activations;
    };
    EXPECT_EQ(stored(4, Recompute::on) - stored(1, Recompute::on), 3 * kInputBytes);
    const int64_t block = stored(2, Recompute::off) - stored(1, Recompute::off);
    EXPECT_EQ(stored(4, Recompute::off) - stored(1, Recompute::off), 3 * block);
    EXPECT_GT(block, 8 * kInputBytes);
  }
}

template <class Module>
Module seeded(Module module) {
  at::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(5);
  for (auto& parameter : module->parameters()) parameter.normal_(0.0, 0.5, generator);
  return module;
}

at::Tensor input_of(int step, int rank) {
  auto generator = at::detail::createCPUGenerator(100 + 10 * step + rank);
  return at::randn({3, 4}, generator);
}

struct BlockImpl : Unit {
  BlockImpl() {
    up = register_module("up", torch::nn::Linear(4, 8));
    down = register_module("down", torch::nn::Linear(8, 4));
  }
  at::Tensor forward(at::Tensor x) {
    ++calls;
    if (calls == fails_at) throw std::runtime_error("boom");
    auto hidden = at::gelu(up(x));
    if (drops) hidden = at::dropout(hidden, 0.5, true);
    return x + down(hidden);
  }
  torch::nn::Linear up{nullptr}, down{nullptr};
  bool drops = false;
  int calls = 0, fails_at = -1;
};
FULLSHARD_UNIT(Block);

// A unit with units inside, one of them called twice.
struct OuterImpl : Unit {
  OuterImpl() {
    first = register_module("first", Block());
    second = register_module("second", Block());
    scale = register_parameter("scale", at::ones({4}));
  }
  at::Tensor forward(at::Tensor x) { return second(first(x)) * scale; }
  Block first{nullptr}, second{nullptr};
  at::Tensor scale;
};
FULLSHARD_UNIT(Outer);

struct NetImpl : Unit {
  NetImpl() {
    outer = register_module("outer", Outer());
    twice = register_module("twice", Block());
  }
  at::Tensor forward(at::Tensor x) { return twice(twice(outer(x))).pow(2).sum(); }
  Outer outer{nullptr};
  Block twice{nullptr};
};
FULLSHARD_UNIT(Net);

at::Tensor net_loss(Net& model, int step, int rank) { return model(input_of(step, rank)); }

// The default generator belongs to the process, which is one rank's alone here.
TEST(RecomputeTraining, GivesTheSameBitsWithDropout) {
  check_case(
      {1}, RecomputePolicy::all(),
      [] {
        at::manual_seed(9);
        auto model = seeded(Net());
        for (auto* block : {&model->outer->first, &model->outer->second, &model->twice}) {
          (*block)->drops = true;
        }
        return model;
      },
      net_loss);
}

TEST(RecomputeTraining, NestedUnitsAndOneCalledTwice) {
  check_case(
      {1, 2, 3}, RecomputePolicy::all(), [] { return seeded(Net()); }, net_loss);
  check_case(
      {1, 2}, RecomputePolicy::classes({"Block"}), [] { return seeded(Net()); }, net_loss);
}

TEST(RecomputeTraining, ModulesThatAreMarkedButNoUnits) {
  const auto make = [] { return seeded(Net()); };
  run_ranks({.ranks = 2}, [&](const World& world) {
    const auto pieces_of = [&](const RecomputePolicy& policy) {
      auto model = make();
      ShardOptions options;
      options.wrap = WrapPolicy::classes({"Outer"});
      options.recompute = policy;
      auto sharded = shard(model, world, options);
      EXPECT_EQ(model->outer->first->recompute(), !policy.is_none());
      net_loss(model, 0, world.rank()).backward();
      std::vector<at::Tensor> gradients;
      for (const auto& piece : sharded.pieces()) gradients.push_back(piece.gradient.clone());
      return gradients;
    };
    const auto plain = pieces_of(RecomputePolicy::none());
    const auto recomputed = pieces_of(RecomputePolicy::classes({"Block"}));
    ASSERT_EQ(plain.size(), recomputed.size());
    for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(plain[i], recomputed[i])) << i;
  });
}

TEST(RecomputeTraining, AGoodStepFollowsAnExceptionInTheReplay) {
  const auto make = [] { return seeded(Net()); };
  const auto expected = train({2}, RecomputePolicy::all(), make, net_loss);
  run_ranks({.ranks = 2}, [&](const World& world) {
    auto model = make();
    const Setting setting{2, Strategy::full_shard, Recompute::on, Offload::on};
    auto sharded = shard(model, world, options_of(setting, RecomputePolicy::all()));
    model->outer->first->fails_at = 2;
    EXPECT_THROW(net_loss(model, 0, world.rank()).backward(), std::exception);
    AdamW optimizer(sharded, {});
    std::vector<double> losses;
    for (int step = 0; step < 3; ++step) {
      auto loss = net_loss(model, step, world.rank());
      losses.push_back(loss.item<double>());
      loss.backward();
      EXPECT_EQ(sharded.counters().live_numel, 0);
      EXPECT_EQ(sharded.ledger().held(tiers::Purpose::activations, tiers::Tier::host), 0);
      optimizer.step();
      optimizer.zero_grad();
    }
    if (world.rank() == 0) {
      EXPECT_EQ(losses, expected.losses);
    }
  });
}

TEST(RecomputeTraining, AutogradGradLeavesNoGradientsAndTheUnitsResting) {
  for (const Strategy strategy : kStrategies) {
    run_ranks({.ranks = 2}, [&](const World& world) {
      auto model = seeded(Net());
      const Setting setting{2, strategy, Recompute::on, Offload::on};
      auto sharded = shard(model, world, options_of(setting, RecomputePolicy::all()));
      const auto gradient_of = [&](Net& net) {
        auto x = input_of(0, world.rank()).requires_grad_();
        return torch::autograd::grad({net(x)}, {x})[0];
      };
      auto plain = seeded(Net());
      EXPECT_TRUE(at::equal(gradient_of(model), gradient_of(plain)));
      EXPECT_EQ(sharded.counters().live_numel, 0);
      EXPECT_EQ(sharded.counters().reductions, 0);
      EXPECT_FALSE(sharded.pieces()[0].gradient.defined());
    });
  }
}

TEST(RecomputeTraining, APolicyThatChoosesNothingIsAWarning) {
  auto model = seeded(Block());
  ShardOptions options;
  options.recompute = RecomputePolicy::all();
  const auto sharded = shard(model, World::single(), options);
  ASSERT_EQ(sharded.warnings().size(), 1);
  EXPECT_EQ(sharded.warnings()[0],
            "recompute: the policy chooses no module of this model, so all activations are kept; "
            "make units of the modules that repeat");
}

TEST(RecomputeTraining, AnUnknownClassLeavesTheModelUsable) {
  auto model = seeded(Net());
  ShardOptions options;
  options.recompute = RecomputePolicy::classes({"Blok"});
  EXPECT_THROW(shard(model, World::single(), options), Error);
  net_loss(model, 0, 0).backward();
  EXPECT_TRUE(model->twice->up->weight.grad().defined());
}

TEST(RecomputeTraining, AGraphThatOutlivesTheModelGivesItsActivationsBack) {
  auto ledger = std::shared_ptr<Ledger>();
  at::Tensor loss;
  {
    auto model = seeded(Net());
    ShardOptions options;
    options.offload_activations = true;
    options.offload_activations_min_bytes = 0;
    auto sharded = shard(model, World::single(), options);
    ledger = engine::EngineAccess::of(sharded).ledger();
    loss = net_loss(model, 0, 0);
    EXPECT_GT(ledger->held(tiers::Purpose::activations, tiers::Tier::host), 0);
  }
  loss = at::Tensor();
  EXPECT_EQ(ledger->held(tiers::Purpose::activations, tiers::Tier::host), 0);
}

}  // namespace
}  // namespace fullshard::testing
