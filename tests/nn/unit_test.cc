// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/unit.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <sstream>
#include <stdexcept>

#include "recording_hooks.h"

namespace fullshard::nn {
namespace {

using torch::Tensor;

struct BlockImpl : Unit {
  explicit BlockImpl(int64_t width)
      : linear(register_module("linear", torch::nn::Linear(width, width))) {}
  Tensor forward(Tensor x) { return linear(x); }
  torch::nn::Linear linear;
};
FULLSHARD_UNIT(Block);

struct Options {
  double scale = 1;
  Tensor bias;
};

struct Scored {
  Tensor value;
  std::vector<Tensor> parts;
  int64_t count = 0;
};

struct ScoreImpl : Unit {
  Scored forward(const Tensor& x, Options options = {}, int64_t times = 2) const {
    Tensor value = x * options.scale;
    if (options.bias.defined()) value = value + options.bias;
    return {value * times, {x + 1, Tensor()}, times};
  }
};
FULLSHARD_UNIT(Score);

struct DefaultsImpl : Unit {
  Tensor forward(Tensor x, double scale = 3) { return x * scale; }

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(3.0)})
};
FULLSHARD_UNIT(Defaults);

struct ThrowingImpl : Unit {
  Tensor forward(Tensor x) {
    if (x.numel() == 2) throw std::runtime_error("two");
    return x;
  }
};
FULLSHARD_UNIT(Throwing);

struct CopiedImpl : torch::nn::Cloneable<CopiedImpl>, UnitState {
  CopiedImpl() { reset(); }
  void reset() override {
    weight = register_parameter("weight", torch::ones({2}));
    inner = register_module("inner", Wrap<torch::nn::Linear>(2, 2));
  }
  Tensor forward(Tensor x) { return inner(x * weight); }
  Tensor weight;
  Wrap<torch::nn::Linear> inner{nullptr};
};
FULLSHARD_UNIT(Copied);

template <class Module>
std::vector<std::string> parameter_names(const Module& module) {
  std::vector<std::string> names;
  for (const auto& parameter : module->named_parameters()) names.push_back(parameter.key());
  return names;
}

const Events kOnce{"before", "after"};

TEST(Unit, EveryFormOfCallRunsTheHooksOnce) {
  RecordingHooks hooks;
  Block block(4);
  block->set_hooks(&hooks);
  const Tensor x = at::ones({2, 4});
  const auto events_of = [&](auto&& call) {
    hooks.events.clear();
    call();
    return hooks.events;
  };
  EXPECT_EQ(events_of([&] { block(x); }), kOnce);
  EXPECT_EQ(events_of([&] { block->forward(x); }), kOnce);
  EXPECT_EQ(events_of([&] { block.ptr()->forward(x); }), kOnce);
  torch::nn::Sequential sequential(block);
  EXPECT_EQ(events_of([&] { sequential->forward(x); }), kOnce);
  torch::nn::AnyModule any(block);
  EXPECT_EQ(events_of([&] { any.forward(x); }), kOnce);
  std::vector<Block> blocks{block};
  EXPECT_EQ(events_of([&] { blocks[0](x); }), kOnce);
}

TEST(Unit, WithoutHooksIsThePlainModule) {
  Block block(4);
  EXPECT_TRUE(block->is_plain());
  const Tensor x = at::ones({2, 4});
  EXPECT_TRUE(at::equal(block(x), block->linear->forward(x)));
}

TEST(Unit, CanBeEmptyAndRegistered) {
  Block block{nullptr};
  EXPECT_TRUE(block.is_empty());
  struct Parent : torch::nn::Module {
    Block block = register_module("block", Block(2));
  } parent;
  EXPECT_EQ(parent.named_parameters().keys(),
            (std::vector<std::string>{"block.linear.weight", "block.linear.bias"}));
  EXPECT_NE(parent.children()[0]->as<BlockImpl>(), nullptr);
  EXPECT_NE(dynamic_cast<UnitState*>(parent.children()[0].get()), nullptr);
}

TEST(Unit, KeepsItsNames) {
  Block block(4);
  EXPECT_EQ(block->class_name(), "Block");
  EXPECT_EQ(block->name(), "Block");
  EXPECT_EQ(class_name_of(*block.ptr()), "Block");
  EXPECT_EQ(parameter_names(block), (std::vector<std::string>{"linear.weight", "linear.bias"}));
  std::ostringstream printed;
  printed << *block;
  EXPECT_EQ(printed.str().substr(0, 6), "Block(");
}

TEST(Unit, KeepsDefaultArgumentsAndBraces) {
  Defaults defaults;
  const Tensor x = at::ones({1});
  EXPECT_EQ(defaults(x).item<double>(), 3);
  EXPECT_EQ(defaults->forward(x).item<double>(), 3);
  EXPECT_EQ(defaults->forward(x, 4).item<double>(), 4);
  torch::nn::AnyModule any(defaults);
  EXPECT_EQ(any.forward(x).item<double>(), 3);
  EXPECT_EQ(any.forward(x, 5.0).item<double>(), 5);
  Score score;
  EXPECT_EQ(score->forward(x, {.scale = 4, .bias = {}}, 1).value.item<double>(), 4);
}

TEST(Unit, ShowsTensorsOfStructsAndTuples) {
  RecordingHooks hooks;
  Score score;
  score->set_hooks(&hooks);
  const Tensor x = at::ones({1});
  const Scored result = score(x, Options{.scale = 2, .bias = x});
  EXPECT_EQ(result.value.item<double>(), 6);
  EXPECT_EQ(result.count, 2);
  ASSERT_EQ(hooks.inputs.size(), 2);
  EXPECT_TRUE(hooks.inputs[0].is_same(x));
  ASSERT_EQ(hooks.outputs.size(), 2);
  EXPECT_TRUE(hooks.outputs[0].is_same(result.value));
  EXPECT_TRUE(hooks.outputs[1].is_same(result.parts[0]));
  score(x);
  EXPECT_EQ(hooks.inputs.size(), 1);
}

TEST(Unit, SaysThatItsForwardFailed) {
  RecordingHooks hooks;
  Throwing unit;
  unit->set_hooks(&hooks);
  EXPECT_THROW(unit(at::ones({2})), std::runtime_error);
  EXPECT_EQ(hooks.events, (Events{"before", "failed"}));
  unit(at::ones({1}));
  EXPECT_EQ(hooks.events, (Events{"before", "failed", "before", "after"}));
}

TEST(Unit, CloneHasNoHooksAndIsAUnitAgain) {
  RecordingHooks hooks;
  Copied original;
  original->set_hooks(&hooks);
  original->set_recompute(true);
  original->set_vocabulary_part(VocabularyPart::head);
  original->inner->set_hooks(&hooks);
  const auto clone = original->clone();
  auto* unit = dynamic_cast<UnitState*>(clone.get());
  ASSERT_NE(unit, nullptr);
  EXPECT_EQ(unit->hooks(), nullptr);
  EXPECT_TRUE(unit->recompute());
  EXPECT_EQ(unit->vocabulary_part(), VocabularyPart::head);
  EXPECT_EQ(unit->class_name(), "Copied");
  auto* inner = dynamic_cast<UnitState*>(clone->children()[0].get());
  ASSERT_NE(inner, nullptr);
  EXPECT_EQ(inner->hooks(), nullptr);
  EXPECT_EQ(original->inner->hooks(), &hooks);
  const auto ours = original->parameters(), theirs = clone->parameters();
  ASSERT_EQ(theirs.size(), 3);
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(at::equal(ours[i], theirs[i]));
    EXPECT_NE(ours[i].data_ptr(), theirs[i].data_ptr());
  }
  std::dynamic_pointer_cast<Around<CopiedImpl>>(clone)->forward(at::ones({2}));
  EXPECT_EQ(hooks.events, Events());
}

TEST(Unit, AssignmentKeepsTheTargetsHooks) {
  RecordingHooks hooks, others;
  UnitState target, source;
  target.set_hooks(&hooks);
  source.set_hooks(&others);
  source.set_recompute(true);
  target = source;
  EXPECT_EQ(target.hooks(), &hooks);
  EXPECT_TRUE(target.recompute());
}

TEST(Wrap, MakesAnyModuleAUnit) {
  RecordingHooks hooks;
  Wrap<torch::nn::Linear> linear(3, 2);
  Wrap<torch::nn::LinearImpl> with_options(torch::nn::LinearOptions(3, 2).bias(false));
  linear->set_hooks(&hooks);
  EXPECT_EQ(linear->class_name(), "Linear");
  EXPECT_EQ(parameter_names(linear), (std::vector<std::string>{"weight", "bias"}));
  EXPECT_EQ(parameter_names(with_options), (std::vector<std::string>{"weight"}));
  const Tensor x = at::ones({1, 3});
  EXPECT_TRUE(at::equal(linear(x), linear->torch::nn::LinearImpl::forward(x)));
  torch::nn::Sequential sequential(
      linear, with_options->weight.defined() ? Wrap<torch::nn::Linear>(2, 1) : nullptr);
  sequential->forward(x);
  EXPECT_EQ(hooks.events, (Events{"before", "after", "before", "after"}));
  std::ostringstream printed;
  printed << *linear;
  EXPECT_EQ(printed.str(), "torch::nn::Linear(in_features=3, out_features=2, bias=true)");
}

struct Overloaded : Unit {
  Tensor forward(Tensor x) { return x; }
  Tensor forward(Tensor x, Tensor) { return x; }
};
struct Templated : Unit {
  template <class T>
  T forward(T x) {
    return x;
  }
};
struct Missing : Unit {};
struct Void : Unit {
  void forward(Tensor) {}
};
struct Reference : Unit {
  Tensor& forward(Tensor& x) { return x; }
};

TEST(Unit, RefusesForwardsThatItCannotSurround) {
  EXPECT_TRUE(HasOneForward<BlockImpl> && ReturnsValue<BlockImpl>);
  EXPECT_TRUE(HasOneForward<ScoreImpl> && ReturnsValue<ScoreImpl>);  // const
  EXPECT_FALSE(HasOneForward<Overloaded>);
  EXPECT_FALSE(HasOneForward<Templated>);
  EXPECT_FALSE(HasOneForward<Missing>);
  EXPECT_TRUE(HasOneForward<Void>);
  EXPECT_FALSE(ReturnsValue<Void>);
  EXPECT_FALSE(ReturnsValue<Reference>);
}

}  // namespace
}  // namespace fullshard::nn
