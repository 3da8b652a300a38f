// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/cast_tensors.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "expect_error.h"
#include "fullshard/nn/unit.h"
#include "recording_hooks.h"

namespace fullshard::nn {
namespace {

using torch::Tensor;

constexpr ForwardCasts kBf16In{.inputs = at::kBFloat16};

struct Batch {
  Tensor values, mask, ids, nothing;
  std::vector<Tensor> parts;
  std::map<std::string, Tensor> named;
  double scale = 2;
};

Batch make_batch() {
  return {at::ones({2}),
          at::ones({2}, at::kBool),
          at::arange(3),
          Tensor(),
          {at::ones({1}), at::ones({1}, at::kHalf)},
          {{"bias", at::ones({2}, at::kDouble)}}};
}

TEST(CastTensors, ChangesFloatingTensorsOnlyHoweverDeepTheyLie) {
  auto value = std::make_tuple(make_batch(), std::optional<Tensor>(at::ones({2})), 5);
  cast_tensors(value, at::kBFloat16);
  const auto& [batch, extra, number] = value;
  EXPECT_EQ(batch.values.scalar_type(), at::kBFloat16);
  EXPECT_EQ(batch.mask.scalar_type(), at::kBool);
  EXPECT_EQ(batch.ids.scalar_type(), at::kLong);
  EXPECT_FALSE(batch.nothing.defined());
  EXPECT_EQ(batch.parts[0].scalar_type(), at::kBFloat16);
  EXPECT_EQ(batch.parts[1].scalar_type(), at::kBFloat16);
  EXPECT_EQ(batch.named.at("bias").scalar_type(), at::kBFloat16);
  EXPECT_EQ(extra->scalar_type(), at::kBFloat16);
  EXPECT_EQ(number, 5);
}

TEST(CastTensors, LeavesATensorOfTheDtypeItself) {
  Tensor tensor = at::ones({2}, at::kBFloat16), before = tensor;
  EXPECT_FALSE(any_needs_cast(tensor, at::kBFloat16));
  cast_tensors(tensor, at::kBFloat16);
  EXPECT_TRUE(tensor.is_same(before));
  Tensor complex = at::ones({2}, at::kComplexFloat), same = complex;
  cast_tensors(complex, at::kBFloat16);
  EXPECT_TRUE(complex.is_same(same));
}

// What a forward was given.
struct Seen {
  std::vector<at::ScalarType> dtypes;
  Tensor tensor;
};

struct WatchedImpl : Unit {
  explicit WatchedImpl(Seen* seen = nullptr) : seen_(seen) {
    weight = register_parameter("weight", at::full({2}, 1.5, at::kBFloat16));
  }
  Tensor forward(const Tensor& x, const Tensor& bias = {}, double scale = 3) {
    if (seen_ != nullptr) {
      seen_->dtypes.push_back(x.scalar_type());
      seen_->tensor = x;
    }
    const Tensor y = x * weight * scale;
    return bias.defined() ? y + bias : y;
  }
  Tensor weight;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Tensor())}, {2, torch::nn::AnyValue(3.0)})

 private:
  Seen* seen_;
};
FULLSHARD_UNIT(Watched);

TEST(UnitCasts, EveryFormOfCallSeesTheInputDtype) {
  Seen seen;
  Watched unit(&seen);
  unit->set_casts(kBf16In);
  EXPECT_FALSE(unit->is_plain());
  Tensor x = at::ones({2});
  const Tensor fixed = x;
  unit(x);
  unit(fixed);
  unit(at::ones({2}));
  unit->forward(x, at::ones({2}), 2);
  unit.ptr()->forward(x, {}, 2.0);
  torch::nn::Sequential sequential(unit);
  sequential->forward(x);
  torch::nn::AnyModule any(unit);
  any.forward(x, Tensor(), 2.0);
  EXPECT_EQ(seen.dtypes, std::vector<at::ScalarType>(7, at::kBFloat16));
  EXPECT_EQ(x.scalar_type(), at::kFloat);  // the caller's own is left alone
}

TEST(UnitCasts, NothingToCastPassesTheSameTensor) {
  Seen seen;
  Watched unit(&seen);
  unit->set_casts(kBf16In);
  const Tensor x = at::ones({2}, at::kBFloat16);
  unit(x);
  EXPECT_TRUE(seen.tensor.is_same(x));
}

TEST(UnitCasts, OutputsAreCastAndGradientsComeBackInTheCallersDtype) {
  Watched unit;
  unit->set_casts({.inputs = at::kBFloat16, .outputs = at::kFloat});
  const Tensor x = at::full({2}, 0.25).set_requires_grad(true);
  const Tensor y = unit(x);
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(y, at::full({2}, 1.125)));
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::full({2}, 4.5)));
  EXPECT_TRUE(at::equal(unit->weight.grad(), at::full({2}, 0.75, at::kBFloat16)));
}

TEST(UnitCasts, HooksSeeCastInputsAndUncastOutputs) {
  RecordingHooks hooks;
  Watched unit;
  unit->set_hooks(&hooks);
  unit->set_casts({.inputs = at::kBFloat16, .outputs = at::kDouble});
  EXPECT_EQ(unit(at::ones({2})).scalar_type(), at::kDouble);
  ASSERT_EQ(hooks.inputs.size(), 1);
  EXPECT_EQ(hooks.inputs[0].scalar_type(), at::kBFloat16);
  EXPECT_EQ(hooks.outputs[0].scalar_type(), at::kBFloat16);
}

TEST(UnitCasts, ARecomputedCallReplaysTheCastInputs) {
  const auto run = [](bool recompute, Seen* seen) {
    Watched unit(seen);
    unit->set_casts({.inputs = at::kBFloat16, .outputs = at::kFloat});
    unit->set_recompute(recompute);
    const Tensor x = at::full({2}, 1.0 / 3).set_requires_grad(true);
    (unit(x, x) * 5).sum().backward();
    return std::pair(x.grad(), unit->weight.grad());
  };
  Seen seen;
  const auto [input, weight] = run(true, &seen);
  const auto [plain_input, plain_weight] = run(false, nullptr);
  EXPECT_EQ(seen.dtypes, std::vector<at::ScalarType>(2, at::kBFloat16));
  EXPECT_TRUE(at::equal(input, plain_input));
  EXPECT_TRUE(at::equal(weight, plain_weight));
}

struct TakesBatchImpl : Unit {
  std::tuple<Batch, std::vector<Tensor>> forward(Batch batch, const std::vector<Tensor>& more) {
    seen = batch.values.scalar_type();
    return {batch, more};
  }
  at::ScalarType seen = at::kFloat;
};
FULLSHARD_UNIT(TakesBatch);

TEST(UnitCasts, ReachIntoStructsVectorsAndTuples) {
  TakesBatch unit;
  unit->set_casts({.inputs = at::kHalf, .outputs = at::kDouble});
  const std::vector<Tensor> more{at::ones({1}), Tensor(), at::arange(2)};
  const auto [batch, vector] = unit(make_batch(), more);
  EXPECT_EQ(unit->seen, at::kHalf);
  EXPECT_EQ(batch.values.scalar_type(), at::kDouble);
  EXPECT_EQ(batch.ids.scalar_type(), at::kLong);
  EXPECT_EQ(vector[0].scalar_type(), at::kDouble);
  EXPECT_FALSE(vector[1].defined());
  EXPECT_EQ(vector[2].scalar_type(), at::kLong);
  EXPECT_EQ(more[0].scalar_type(), at::kFloat);
}

struct Cache {
  std::vector<Tensor> keys;
};

struct CachingImpl : Unit {
  Tensor forward(Tensor x, Cache& cache) {
    cache.keys.push_back(x);
    return x;
  }
};
FULLSHARD_UNIT(Caching);

TEST(UnitCasts, WhatForwardTakesByReferenceBelongsToTheCaller) {
  Caching unit;
  unit->set_casts(kBf16In);
  Cache cache{{at::ones({2})}};
  unit(at::ones({2}), cache);
  ASSERT_EQ(cache.keys.size(), 2);
  EXPECT_EQ(cache.keys[0].scalar_type(), at::kFloat);
  EXPECT_EQ(cache.keys[1].scalar_type(), at::kBFloat16);
}

struct Unique {
  Tensor tensor;
  std::unique_ptr<int> number;
};

struct TakesUniqueImpl : Unit {
  Tensor forward(const Unique& unique) { return unique.tensor * *unique.number; }
};
FULLSHARD_UNIT(TakesUnique);

TEST(UnitCasts, WhatCannotBeCopiedIsMovedOrRefused) {
  TakesUnique unit;
  unit->set_casts(kBf16In);
  EXPECT_EQ(unit(Unique{at::ones({2}), std::make_unique<int>(3)}).scalar_type(), at::kBFloat16);
  const Unique kept{at::ones({2}), std::make_unique<int>(3)};
  EXPECT_EQ(error_of([&] { unit(kept); }),
            "an argument of forward holds tensors that are to be cast to BFloat16, but cannot be "
            "copied; pass it as an rvalue, cast its tensors yourself, or set cast_forward_inputs "
            "to false");
  const Unique narrow{at::ones({2}, at::kBFloat16), std::make_unique<int>(3)};
  EXPECT_EQ(unit(narrow).scalar_type(), at::kBFloat16);
}

TEST(UnitCasts, ACopyOfAModuleHasNone) {
  Wrap<torch::nn::Linear> unit(2, 2);
  unit->set_casts(kBf16In);
  const auto copy = unit.ptr()->clone();
  EXPECT_FALSE(dynamic_cast<UnitState&>(*copy).casts().any());
}

}  // namespace
}  // namespace fullshard::nn
