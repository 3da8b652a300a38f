// SPDX-License-Identifier: Apache-2.0
// What shard() refuses, before it has changed anything, and what is noticed after it.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/linear.h>

#include "fullshard/engine/sharded_model.h"
#include "tests/engine/assembled_model.h"
#include "tests/errors.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;

// A module whose parameters the test registers.
struct BareImpl : Unit {
  at::Tensor forward(at::Tensor x) {
    for (const auto& item : named_parameters(false)) x = x * item.value();
    return x;
  }
};
FULLSHARD_UNIT(Bare);

constexpr const char* kTwice = "is sharded already, and a module is sharded once";

std::string refusal(const auto& model, const ShardOptions& options = {}) {
  return message_of([&] { shard(model, World::single(), options); });
}

TEST(ShardTwice, IsRefusedByName) {
  for (const int ranks : {1, 2}) {
    run_ranks({.ranks = ranks}, [](const World& world) {
      ScaledTwice model;
      auto sharded = shard(model, world);
      const auto message = message_of([&] { shard(model, world); });
      EXPECT_THAT(message, HasSubstr("module '(root)' of class ScaledTwice"));
      EXPECT_THAT(message, HasSubstr(kTwice));
      EXPECT_NO_THROW(model(at::ones({5})).sum().backward());
    });
  }
}

TEST(ShardTwice, APartOfAShardedModelIsRefused) {
  ScaledTwice model;
  auto sharded = shard(model, World::single());
  EXPECT_THAT(refusal(model->b), HasSubstr(kTwice));
}

TEST(ShardTwice, AWholeOfWhichAPartIsShardedIsRefusedAndThePartStillLearns) {
  ScaledTwice model;
  auto part = shard(model->b, World::single());
  EXPECT_THAT(refusal(model), HasSubstr("module 'b' of class ScaleUnit is sharded already"));
  model->b(at::ones({5})).sum().backward();
  EXPECT_GT(part.grad_norm(), 0);
  EXPECT_THAT(refusal(model, {.ignored_modules = "b"}), "no error");
}

TEST(ShardTwice, InPlaceOfItsFirstHandleIsRefusedWithAdvice) {
  ScaledTwice model;
  auto sharded = shard(model, World::single());
  ShardOptions others;
  others.param_dtype = at::kBFloat16;
  const auto message = message_of([&] { sharded = shard(model, World::single(), others); });
  EXPECT_THAT(message, HasSubstr("for other options end its ShardedModel, build the module again"));
  EXPECT_NO_THROW(model(at::ones({5})).sum().backward());
}

TEST(ShardTwice, AModuleWhoseValuesWentIsRefusedByName) {
  for (const int ranks : {1, 2}) {
    run_ranks({.ranks = ranks}, [](const World& world) {
      ScaledTwice model;
      shard(model, world);
      EXPECT_THAT(message_of([&] { shard(model, world); }),
                  HasSubstr("parameter 'weight' was sharded before, and its values went with"));
    });
  }
}

TEST(ShardTwice, AParameterOfAnotherShardedModelIsRefused) {
  Bare first, second;
  const auto shared = first->register_parameter("shared", at::ones({4}));
  second->register_parameter("tied", shared);
  auto sharded = shard(first, World::single());
  EXPECT_THAT(refusal(second), HasSubstr("parameter 'tied' is sharded already"));
}

TEST(ShardGuards, AnEmptyHolderIsRefused) {
  ScaledTwice empty{nullptr};
  EXPECT_THAT(refusal(empty), HasSubstr("shard: the module is empty"));
  EXPECT_THAT(refusal(std::shared_ptr<torch::nn::Module>()), HasSubstr("the module is empty"));
}

TEST(ShardGuards, InferenceModeIsRefused) {
  ScaledTwice model;
  {
    const c10::InferenceMode mode;
    EXPECT_THAT(refusal(model), HasSubstr("shard: called inside c10::InferenceMode"));
  }
  auto sharded = shard(model, World::single());
  EXPECT_NO_THROW(model(at::ones({5})).sum().backward());
}

TEST(ShardGuards, AParameterMadeInInferenceModeIsRefusedByName) {
  Bare model;
  {
    const c10::InferenceMode mode;
    model->register_parameter("made", at::ones({4}), /*requires_grad=*/false);
  }
  EXPECT_THAT(refusal(model), HasSubstr("parameter 'made' was made inside c10::InferenceMode"));
}

TEST(ShardGuards, AQuantisedOrSparseParameterIsRefusedByName) {
  Bare quantised, sparse;
  quantised->register_parameter("q", at::quantize_per_tensor(at::ones({4}), 0.1, 0, at::kQInt8),
                                /*requires_grad=*/false);
  sparse->register_parameter("s", at::ones({4, 4}).to_sparse());
  EXPECT_THAT(refusal(quantised), HasSubstr("parameter 'q' is quantised (QInt8)"));
  EXPECT_THAT(refusal(sparse), HasSubstr("parameter 's' is not dense"));
}

TEST(ShardGuards, WholeNumbersMayBeHeldFrozen) {
  Bare model;
  model->register_parameter("table", at::ones({4}, at::kChar), /*requires_grad=*/false);
  EXPECT_EQ(refusal(model), "no error");
}

TEST(ShardGuards, ADtypeThatCannotBeTrainedIsRefusedByName) {
  Bare model;
  model->register_parameter("c", at::ones({4}, at::kComplexFloat));
  EXPECT_THAT(refusal(model), HasSubstr("parameter 'c' is ComplexFloat, and what is trained is "
                                        "Float, BFloat16, Half or Double"));
}

TEST(ShardGuards, AnExpandedParameterIsRefusedByName) {
  Bare model;
  model->register_parameter("wide", at::ones({1}).expand({4}), /*requires_grad=*/false);
  EXPECT_THAT(refusal(model), HasSubstr("several elements of parameter 'wide'"));
}

TEST(ShardGuards, ParametersOverTheSameMemoryAreRefusedByName) {
  const std::vector<std::pair<at::Tensor, at::Tensor>> pairs = [] {
    const auto memory = at::ones({12});
    return std::vector<std::pair<at::Tensor, at::Tensor>>{
        {memory, memory.detach()},
        {memory.narrow(0, 0, 8), memory.narrow(0, 4, 8)},
        {memory, memory.narrow(0, 5, 2)},
        {memory.view({3, 4}), memory.view({3, 4}).t()}};
  }();
  for (const auto& [first, second] : pairs) {
    Bare model;
    model->register_parameter("a", first, /*requires_grad=*/false);
    model->register_parameter("b", second, /*requires_grad=*/false);
    EXPECT_THAT(refusal(model), HasSubstr("parameter 'a' and parameter 'b' are two tensors over "
                                          "the same memory"));
  }
}

TEST(ShardGuards, ABufferOverAParametersMemoryIsRefusedByName) {
  Bare model;
  const auto weight = model->register_parameter("weight", at::ones({4}));
  model->register_buffer("seen", weight.detach());
  EXPECT_THAT(refusal(model), HasSubstr("parameter 'weight' and buffer 'seen'"));
}

TEST(ShardGuards, TensorsSideBySideInOneMemoryMayBeSharded) {
  const auto memory = at::ones({4, 6});
  Bare model;
  model->register_parameter("rows", memory.narrow(0, 0, 2), /*requires_grad=*/false);
  model->register_parameter("left", memory.narrow(0, 2, 2).narrow(1, 0, 3), false);
  model->register_parameter("right", memory.narrow(0, 2, 2).narrow(1, 3, 3), false);
  EXPECT_EQ(refusal(model), "no error");
}

TEST(ShardGuards, ARefusedModelIsAsItWas) {
  ScaledTwice model;
  const auto weight = model->weight;
  const auto* const memory = weight.const_data_ptr();
  model->b->register_parameter("again", weight.detach());
  EXPECT_THAT(refusal(model, {.recompute = RecomputePolicy::all()}), HasSubstr("'b.again'"));
  EXPECT_EQ(weight.const_data_ptr(), memory);
  EXPECT_EQ(model->a->hooks(), nullptr);
  EXPECT_FALSE(model->a->recompute());
}

constexpr const char* kLate =
    "was registered after shard(), which does not know it: it is neither trained nor saved";

TEST(LateParameter, IsNamedAtTheNextForward) {
  for (const int ranks : {1, 2}) {
    run_ranks({.ranks = ranks}, [](const World& world) {
      ScaledTwice model;
      auto sharded = shard(model, world);
      model(at::ones({5})).sum().backward();
      model->b->register_parameter("late", at::zeros({5}));
      const auto message = message_of([&] { model(at::ones({5})); });
      EXPECT_THAT(message, HasSubstr("parameter 'b.late'"));
      EXPECT_THAT(message, HasSubstr(kLate));
    });
  }
}

TEST(LateParameter, IsNamedAtTheStep) {
  ScaledTwice model;
  auto sharded = shard(model, World::single());
  model(at::ones({5})).sum().backward();
  model->register_parameter("late", at::zeros({5}));
  EXPECT_THAT(message_of([&] { sharded.update([](const auto&, double) {}); }), HasSubstr(kLate));
}

TEST(LateParameter, OfAModuleInAnothersPlaceIsNamed) {
  ScaledTwice model;
  auto sharded = shard(model, World::single());
  model->replace_module("b", ScaleUnit());
  EXPECT_THAT(message_of([&] { model(at::ones({5})); }), HasSubstr("parameter 'b.weight'"));
}

TEST(LateParameter, OfAnIgnoredModuleIsTheUsers) {
  ScaledTwice model;
  auto sharded = shard(model, World::single(), {.ignored_modules = "b"});
  model->b->register_parameter("late", at::zeros({5}));
  for (int repeat = 0; repeat < 2; ++repeat) EXPECT_NO_THROW(model(at::ones({5})));
}

TEST(SecondDerivatives, OverShardsAreRefusedWhereTheGraphIsMade) {
  run_ranks({.ranks = 2}, [](const World& world) {
    ScaledTwice model;
    auto sharded = shard(model, world);
    const auto x = at::ones({5}).requires_grad_();
    const auto loss = model(x).pow(2).sum();
    EXPECT_THAT(message_of([&] {
                  torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true,
                                        /*create_graph=*/true);
                }),
                HasSubstr("with create_graph = true: second derivatives need whole parameters"));
    sharded.zero_grad();
    EXPECT_NO_THROW(model(x).pow(2).sum().backward());
  });
}

}  // namespace
}  // namespace fullshard::testing
