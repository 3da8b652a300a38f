// SPDX-License-Identifier: Apache-2.0
// Ways in which real models call their units.
#include "tests/training/hook_cases.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

namespace fullshard::testing {
namespace {

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

// The only trained parameter of the outer unit has its gradient first; what comes for the unit
// inside still goes through a frozen one.
TEST(HookCases, ATrainedHeadOverAFrozenLayerAndAUnit) {
  struct HeadedImpl : Unit {
    HeadedImpl() {
      inside = register_module("inside", Lora());
      frozen = register_module("frozen", torch::nn::Linear(4, 4));
      head = register_module("head", torch::nn::Linear(4, 3));
      for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    }
    at::Tensor forward(at::Tensor x) { return head(at::gelu(frozen(inside(x)))); }
    Lora inside{nullptr};
    torch::nn::Linear frozen{nullptr}, head{nullptr};
  };
  using Headed = UnitHolder<HeadedImpl>;
  check_hooks([] { return seeded_case(Headed()); },
              [](Headed& model, int rank) { return model(input_of_case(rank)).pow(2).sum(); });
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

// Losses that no unit gives out: their gradients reach parameters before any unit's output has one,
// or no output ever gets one. Their backward reads no parameter, which may be sharded then.
struct SideBlockImpl : Unit {
  SideBlockImpl() { linear = register_module("linear", torch::nn::Linear(4, 4)); }
  at::Tensor forward(at::Tensor x) {
    side = linear->bias.sum();
    return linear(std::move(x));
  }
  torch::nn::Linear linear{nullptr};
  at::Tensor side;
};
FULLSHARD_UNIT(SideBlock);

struct SideLossImpl : Unit {
  SideLossImpl() {
    block = register_module("block", SideBlock());
    special = register_parameter("special", at::ones({3}));
  }
  at::Tensor forward(at::Tensor x) {
    auto y = block(std::move(x));
    side = 2 * special.sum() + block->side;
    return y;
  }
  SideBlock block{nullptr};
  at::Tensor special, side;
};
FULLSHARD_UNIT(SideLoss);

TEST(HookCases, ALossBesideTheOutputs) {
  check_hooks([] { return seeded_case(SideLoss()); },
              [](SideLoss& model, int rank) {
                const auto output = model(input_of_case(rank));
                return output.pow(2).sum() + model->side;
              });
}

TEST(HookCases, ALossBesideTheOutputsAlone) {
  check_hooks([] { return seeded_case(SideLoss()); },
              [](SideLoss& model, int rank) {
                model(input_of_case(rank));
                return model->side * (rank + 1);
              });
}

// The backward of a gradient reaches parameters through no unit's output.
TEST(HookCases, SecondDerivativesOfWholeParameters) {
  const auto make = [] { return seeded_case(Twice()); };
  const auto loss = [](Twice& model, int rank) {
    const auto x = input_of_case(rank).requires_grad_();
    const auto y = at::tanh(model(x)).sum();
    const auto slopes = torch::autograd::grad({y}, {x}, {}, std::nullopt, /*create_graph=*/true);
    return slopes[0].pow(2).sum();
  };
  for (const auto& [ranks, stage] :
       std::vector<std::pair<int, int>>{{1, 0}, {1, 2}, {1, 3}, {2, 0}, {2, 2}}) {
    SCOPED_TRACE(fmt::format("{} ranks, stage {}", ranks, stage));
    const auto expected = expected_gradients(make, loss, ranks);
    run_ranks({.ranks = ranks}, [&](const World& world) {
      auto model = make();
      ShardOptions options;
      options.sharding.zero_stage = stage;
      options.share_host_copy = false;
      auto sharded = shard(model, world, options);
      for (int repeat = 0; repeat < 2; ++repeat) {
        loss(model, world.rank()).backward();
        expect_gradients(sharded, expected);
        sharded.zero_grad();
      }
    });
  }
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

}  // namespace
}  // namespace fullshard::testing
