// Ways in which real models call their units.
#include <ATen/ops/gelu.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "fullshard/nn/unit.h"
#include "fullshard/optim/sgd.h"
#include "fullshard/shard/sharded_model.h"

namespace fullshard {
namespace {

// Every module here starts from the same values on every call.
template <class Module>
Module seeded_case(Module module) {
  at::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(5);
  for (auto& parameter : module->parameters()) parameter.normal_(0.0, 0.5, generator);
  return module;
}

at::Tensor input_of_case(int rank, int64_t width = 4) {
  auto generator = at::detail::createCPUGenerator(100 + rank);
  return at::randn({3, width}, generator);
}

using Gradients = std::map<std::string, at::Tensor>;

// The mean over ranks of the gradients of `loss(model, rank)`, without the engine.
template <class Make, class Loss>
Gradients expected_gradients(const Make& make, const Loss& loss, int ranks) {
  auto model = make();
  for (int rank = 0; rank < ranks; ++rank) {
    const auto value = loss(model, rank);
    if (value.requires_grad()) (value / ranks).backward();
  }
  Gradients gradients;
  for (const auto& item : model->named_parameters()) {
    if (!item.value().requires_grad()) continue;
    gradients[item.key()] =
        item.value().grad().defined() ? item.value().grad() : at::zeros_like(item.value());
  }
  return gradients;
}

// This rank's pieces against the same part of the expected gradients.
void expect_gradients(const ShardedModel& sharded, const Gradients& expected) {
  size_t found = 0;
  for (const auto& piece : sharded.pieces()) {
    ASSERT_TRUE(piece.gradient.defined()) << piece.name;
    const auto whole = expected.at(piece.name).flatten();
    EXPECT_TRUE(
        at::allclose(piece.gradient, whole.narrow(0, piece.begin, piece.numel()), 1e-5, 1e-6))
        << piece.name << "\n"
        << piece.gradient << "\n"
        << whole.narrow(0, piece.begin, piece.numel());
    ++found;
  }
  EXPECT_GT(found, 0u);
}

// Runs the case on 1, 2 and 3 ranks under every stage, with and without a shared copy.
template <class Make, class Loss>
void check_hooks(const Make& make, const Loss& loss) {
  for (const int ranks : {1, 2, 3}) {
    const auto expected = expected_gradients(make, loss, ranks);
    for (const int stage : {0, 2, 3}) {
      for (const bool share : {true, false}) {
        SCOPED_TRACE(fmt::format("{} ranks, stage {}, share {}", ranks, stage, share));
        run_ranks({.ranks = ranks}, [&](const World& world) {
          auto model = make();
          ShardOptions options;
          options.sharding.zero_stage = stage;
          options.share_host_copy = share;
          auto sharded = shard(model, world, options);
          for (int repeat = 0; repeat < 2; ++repeat) {
            loss(model, world.rank()).backward();
            expect_gradients(sharded, expected);
            EXPECT_EQ(sharded.counters().live_numel, 0);
            sharded.zero_grad();
          }
        });
      }
    }
  }
}

struct HookedBlockImpl : Unit {
  explicit HookedBlockImpl(int64_t width = 4) {
    up = register_module("up", torch::nn::Linear(width, 2 * width));
    down = register_module("down", torch::nn::Linear(2 * width, width));
  }
  at::Tensor forward(at::Tensor x) { return x + down(at::gelu(up(x))); }
  torch::nn::Linear up{nullptr}, down{nullptr};
};
FULLSHARD_UNIT(HookedBlock);

struct TwiceImpl : Unit {
  TwiceImpl() { block = register_module("block", HookedBlock()); }
  at::Tensor forward(at::Tensor x) { return block(block(x)); }
  HookedBlock block{nullptr};
};
FULLSHARD_UNIT(Twice);

TEST(HookCases, AUnitCalledTwice) {
  check_hooks([] { return seeded_case(Twice()); },
              [](Twice& model, int rank) { return model(input_of_case(rank)).pow(2).sum(); });
}

TEST(HookCases, ARecomputedUnitCalledTwice) {
  check_hooks(
      [] {
        auto model = seeded_case(Twice());
        model->block->set_recompute(true);
        return model;
      },
      [](Twice& model, int rank) { return model(input_of_case(rank)).pow(2).sum(); });
}

TEST(HookCases, ARecomputedUnitAroundANestedOneCalledTwice) {
  struct OuterImpl : Unit {
    OuterImpl() { twice = register_module("twice", Twice()); }
    at::Tensor forward(at::Tensor x) { return twice(twice(x)); }
    Twice twice{nullptr};
  };
  using Outer = UnitHolder<OuterImpl>;
  check_hooks(
      [] {
        auto model = seeded_case(Outer());
        model->twice->set_recompute(true);
        return model;
      },
      [](Outer& model, int rank) { return model(input_of_case(rank)).pow(2).sum(); });
}

// LoRA: frozen weights before, between and after trainable ones, in one unit.
struct LoraImpl : Unit {
  LoraImpl() {
    frozen = register_module("frozen", torch::nn::Linear(4, 4));
    a = register_module("a", torch::nn::Linear(4, 2));
    b = register_module("b", torch::nn::Linear(2, 4));
    last = register_module("last", torch::nn::Linear(4, 4));
    for (auto* linear : {&frozen, &last}) {
      for (auto& parameter : (*linear)->parameters()) parameter.set_requires_grad(false);
    }
  }
  at::Tensor forward(at::Tensor x) { return last(at::gelu(frozen(x)) + b(a(x))); }
  torch::nn::Linear frozen{nullptr}, a{nullptr}, b{nullptr}, last{nullptr};
};
FULLSHARD_UNIT(Lora);

struct LoraStackImpl : Unit {
  LoraStackImpl() {
    head = register_module("head", torch::nn::Linear(4, 4));
    first = register_module("first", Lora());
    second = register_module("second", Lora());
  }
  at::Tensor forward(at::Tensor x) { return second(first(head(x))); }
  torch::nn::Linear head{nullptr};
  Lora first{nullptr}, second{nullptr};
};
FULLSHARD_UNIT(LoraStack);

TEST(HookCases, FrozenAndTrainableParametersInOneUnit) {
  check_hooks([] { return seeded_case(LoraStack()); },
              [](LoraStack& model, int rank) { return model(input_of_case(rank)).pow(2).sum(); });
}

TEST(HookCases, AFrozenUnitBetweenTrainableOnes) {
  struct SandwichImpl : Unit {
    SandwichImpl() {
      first = register_module("first", HookedBlock());
      middle = register_module("middle", HookedBlock());
      last = register_module("last", HookedBlock());
      for (auto& parameter : middle->parameters()) parameter.set_requires_grad(false);
    }
    at::Tensor forward(at::Tensor x) { return last(middle(first(x))); }
    HookedBlock first{nullptr}, middle{nullptr}, last{nullptr};
  };
  using Sandwich = UnitHolder<SandwichImpl>;
  check_hooks([] { return seeded_case(Sandwich()); },
              [](Sandwich& model, int rank) { return model(input_of_case(rank)).pow(2).sum(); });
}

// Outputs: a tuple of which one part is the input itself and one is never used.
struct TupleBlockImpl : Unit {
  TupleBlockImpl() { linear = register_module("linear", torch::nn::Linear(4, 4)); }
  std::tuple<at::Tensor, at::Tensor, at::Tensor> forward(at::Tensor x) {
    auto y = linear(x);
    return {y.relu(), x, y.sigmoid()};
  }
  torch::nn::Linear linear{nullptr};
};
FULLSHARD_UNIT(TupleBlock);

struct StructOutput {
  at::Tensor hidden;
  std::optional<at::Tensor> extra;
  int64_t length = 0;
};

struct StructBlockImpl : Unit {
  StructBlockImpl() { linear = register_module("linear", torch::nn::Linear(4, 4)); }
  StructOutput forward(at::Tensor x, int64_t scale = 2) {
    auto y = linear(x) * scale;
    return {y, y.tanh(), y.size(0)};
  }
  torch::nn::Linear linear{nullptr};
};
FULLSHARD_UNIT(StructBlock);

struct OutputsImpl : Unit {
  OutputsImpl() {
    tuple = register_module("tuple", TupleBlock());
    structure = register_module("structure", StructBlock());
  }
  at::Tensor forward(at::Tensor x) {
    auto [y, passed, unused] = tuple(x);
    auto out = structure(y + passed);
    return out.hidden + *out.extra;
  }
  TupleBlock tuple{nullptr};
  StructBlock structure{nullptr};
};
FULLSHARD_UNIT(Outputs);

TEST(HookCases, TuplesStructsAndPassedThroughOutputs) {
  check_hooks([] { return seeded_case(Outputs()); },
              [](Outputs& model, int rank) { return model(input_of_case(rank)).pow(2).sum(); });
}

struct MaybeImpl : Unit {
  MaybeImpl() {
    always = register_module("always", HookedBlock());
    sometimes = register_module("sometimes", HookedBlock());
    never = register_parameter("never", at::ones({3}));
  }
  at::Tensor forward(at::Tensor x, bool use) {
    x = always(x);
    auto extra = sometimes(x);
    return use ? x + extra : x;
  }
  HookedBlock always{nullptr}, sometimes{nullptr};
  at::Tensor never;
};
FULLSHARD_UNIT(Maybe);

TEST(HookCases, ParametersUnusedOnOneRankOnlyOrOnAll) {
  check_hooks(
      [] { return seeded_case(Maybe()); },
      [](Maybe& model, int rank) { return model(input_of_case(rank), rank == 0).pow(2).sum(); });
}

struct MixedUsesImpl : Unit {
  MixedUsesImpl() {
    single = register_parameter("single", at::ones({5}));
    wide = register_parameter("wide", at::ones({3, 5}, at::kDouble));
    scalar = register_parameter("scalar", at::ones({}));
    empty = register_parameter("empty", at::ones({0, 5}));
  }
  at::Tensor forward(at::Tensor x) {
    return (x * single * scalar).to(at::kDouble).matmul(wide.t()).sum() + empty.sum();
  }
  at::Tensor single, wide, scalar, empty;
};
FULLSHARD_UNIT(MixedUses);

TEST(HookCases, MixedDtypesScalarsAndEmptyTensorsInOneUnit) {
  check_hooks([] { return seeded_case(MixedUses()); },
              [](MixedUses& model, int rank) { return model(input_of_case(rank, 5)).pow(2); });
}

struct TiedImpl : Unit {
  TiedImpl() {
    first = register_module("first", HookedBlock());
    shared = register_parameter("shared", first->up->weight);
  }
  at::Tensor forward(at::Tensor x) { return first(x).matmul(shared.t()); }
  HookedBlock first{nullptr};
  at::Tensor shared;
};
FULLSHARD_UNIT(Tied);

TEST(HookCases, WeightsTiedAcrossUnits) {
  check_hooks([] { return seeded_case(Tied()); },
              [](Tied& model, int rank) { return model(input_of_case(rank)).pow(2).sum(); });
}

TEST(HookCases, SequentialAnyModuleAndForwardRunTheHooks) {
  struct FormsImpl : Unit {
    FormsImpl() {
      sequence = register_module(
          "sequence", torch::nn::Sequential(HookedBlock(), Wrap<torch::nn::LinearImpl>(4, 4)));
      block = register_module("block", HookedBlock());
    }
    at::Tensor forward(at::Tensor x) {
      x = block->forward(sequence->forward(x));
      torch::nn::AnyModule any(block);
      return any.forward(x);
    }
    torch::nn::Sequential sequence{nullptr};
    HookedBlock block{nullptr};
  };
  using Forms = UnitHolder<FormsImpl>;
  check_hooks([] { return seeded_case(Forms()); },
              [](Forms& model, int rank) { return model(input_of_case(rank)).pow(2).sum(); });
}

// An in-place change of the input inside the unit must stay allowed.
TEST(HookCases, AUnitMayChangeItsInputInPlace) {
  struct InPlaceImpl : Unit {
    InPlaceImpl() {
      first = register_module("first", Lora());
      block = register_module("block", HookedBlock());
    }
    at::Tensor forward(at::Tensor x) {
      auto y = first(x) * 1;
      y.add_(1);
      return block(y.relu_());
    }
    Lora first{nullptr};
    HookedBlock block{nullptr};
  };
  using InPlace = UnitHolder<InPlaceImpl>;
  check_hooks([] { return seeded_case(InPlace()); },
              [](InPlace& model, int rank) { return model(input_of_case(rank)).pow(2).sum(); });
}

template <class Body>
void on_two_ranks(const Body& body) {
  for (const bool share : {true, false}) {
    run_ranks({.ranks = 2}, [&](const World& world) {
      auto model = seeded_case(Twice());
      ShardOptions options;
      options.share_host_copy = share;
      auto sharded = shard(model, world, options);
      body(model, sharded, world);
    });
  }
}

TEST(HookCases, EvaluationNeedsNoBackwardAndLeavesNothingGathered) {
  on_two_ranks([](Twice& model, ShardedModel& sharded, const World& world) {
    at::NoGradGuard no_grad;
    const auto expected = seeded_case(Twice())(input_of_case(world.rank()));
    EXPECT_TRUE(at::equal(model(input_of_case(world.rank())), expected));
    EXPECT_EQ(sharded.counters().live_numel, 0);
  });
}

TEST(HookCases, EvaluationBetweenBackwardAndStepSeesTheOldValues) {
  on_two_ranks([](Twice& model, ShardedModel& sharded, const World& world) {
    Sgd optimizer(sharded, {.lr = 0.01});
    for (int step = 0; step < 20; ++step) {
      model(input_of_case(world.rank())).pow(2).sum().backward();
      at::Tensor before, again;
      {
        at::NoGradGuard no_grad;
        before = model(input_of_case(7));
        again = model(input_of_case(7));
      }
      EXPECT_TRUE(at::equal(before, again)) << "step " << step;
      optimizer.step();
      optimizer.zero_grad();
    }
  });
}

TEST(HookCases, AutogradGradLeavesTheUnitsResting) {
  on_two_ranks([](Twice& model, ShardedModel& sharded, const World& world) {
    auto x = input_of_case(world.rank()).requires_grad_();
    const auto gradient = torch::autograd::grad({model(x).pow(2).sum()}, {x})[0];
    auto plain_x = input_of_case(world.rank()).requires_grad_();
    auto plain = seeded_case(Twice());
    const auto expected = torch::autograd::grad({plain(plain_x).pow(2).sum()}, {plain_x})[0];
    EXPECT_TRUE(at::equal(gradient, expected));
    EXPECT_EQ(sharded.counters().live_numel, 0);
    EXPECT_EQ(sharded.counters().reductions, 0);
    EXPECT_FALSE(sharded.pieces()[0].gradient.defined());
  });
}

struct Boom : torch::autograd::Function<Boom> {
  static at::Tensor forward(torch::autograd::AutogradContext*, at::Tensor x) { return x.clone(); }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*,
                                               torch::autograd::tensor_list) {
    throw std::runtime_error("boom");
  }
};

struct FragileImpl : Unit {
  FragileImpl() {
    first = register_module("first", HookedBlock());
    second = register_module("second", HookedBlock());
  }
  at::Tensor forward(at::Tensor x, bool fail_in_forward, bool fail_in_backward) {
    x = first(x);
    if (fail_in_forward) throw std::runtime_error("boom");
    if (fail_in_backward) x = Boom::apply(x);
    return second(x);
  }
  HookedBlock first{nullptr}, second{nullptr};
};
FULLSHARD_UNIT(Fragile);

TEST(HookCases, AGoodStepFollowsAnExceptionInForwardOrBackward) {
  const auto make = [] { return seeded_case(Fragile()); };
  const auto loss = [](Fragile& model, int rank) {
    return model(input_of_case(rank), false, false).pow(2).sum();
  };
  const auto expected = expected_gradients(make, loss, 2);
  for (const int stage : {0, 1, 2, 3}) {
    run_ranks({.ranks = 2}, [&](const World& world) {
      auto model = make();
      ShardOptions options;
      options.sharding.zero_stage = stage;
      auto sharded = shard(model, world, options);
      EXPECT_THROW(model(input_of_case(0), true, false), std::runtime_error);
      EXPECT_EQ(sharded.counters().live_numel, 0);
      EXPECT_THROW(model(input_of_case(0), false, true).sum().backward(), std::exception);
      loss(model, world.rank()).backward();
      expect_gradients(sharded, expected);
      EXPECT_EQ(sharded.counters().live_numel, 0);
    });
  }
}

// Each sends its output to the other: their units alternate in forward and in backward.
TEST(HookCases, TwoModelsInOneProcess) {
  const auto make_left = [] { return seeded_case(Twice()); };
  const auto make_right = [] {
    auto model = seeded_case(Twice());
    at::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) parameter.mul_(0.7);
    return model;
  };
  const auto loss = [](Twice& left, Twice& right, int rank) {
    const auto x = left(input_of_case(rank));
    return (x - right(x)).pow(2).sum();
  };
  for (const int ranks : {1, 2, 3}) {
    auto right = make_right(), left = make_left();
    const auto expected_left = expected_gradients(
        make_left, [&](Twice& model, int rank) { return loss(model, right, rank); }, ranks);
    const auto expected_right = expected_gradients(
        make_right, [&](Twice& model, int rank) { return loss(left, model, rank); }, ranks);
    for (const bool share : {true, false}) {
      SCOPED_TRACE(fmt::format("{} ranks, share {}", ranks, share));
      run_ranks({.ranks = ranks}, [&](const World& world) {
        ShardOptions options;
        options.share_host_copy = share;
        auto own_left = make_left(), own_right = make_right();
        auto sharded_left = shard(own_left, world, options);
        auto sharded_right = shard(own_right, world, options);
        for (int repeat = 0; repeat < 2; ++repeat) {
          loss(own_left, own_right, world.rank()).backward();
          expect_gradients(sharded_left, expected_left);
          expect_gradients(sharded_right, expected_right);
          EXPECT_EQ(sharded_left.counters().live_numel, 0);
          EXPECT_EQ(sharded_right.counters().live_numel, 0);
          sharded_left.zero_grad();
          sharded_right.zero_grad();
        }
      });
    }
  }
}

TEST(HookCases, AnEngineThatEndsAfterAFailedForwardLeavesNoGatherInFlight) {
  for (const std::string backend : {"shm", "gloo"}) {
    run_ranks({.ranks = 2, .backend = backend}, [](const World& world) {
      auto model = seeded_case(Fragile());
      {
        ShardOptions options;
        options.share_host_copy = false;
        options.schedule.forward_prefetch = true;
        auto sharded = shard(model, world, options);
        model(input_of_case(0), false, false).sum().backward();  // the order is known from now on
        EXPECT_THROW(model(input_of_case(0), true, false), std::runtime_error);
        EXPECT_EQ(world.recorder().in_flight(), 1) << "the second unit, fetched ahead";
      }
      EXPECT_EQ(world.recorder().in_flight(), 0);
    });
  }
}

TEST(HookCases, AGraphThatOutlivesTheEngineIsHarmless) {
  auto model = seeded_case(Twice());
  at::Tensor loss;
  {
    auto sharded = shard(model, World::single());
    loss = model(input_of_case(0)).sum();
  }
  EXPECT_THROW(loss.backward(), std::exception);
}

}  // namespace
}  // namespace fullshard
