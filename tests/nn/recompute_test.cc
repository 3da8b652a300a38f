// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/recompute.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/linear.h>

#include <span>

#include "expect_error.h"
#include "fullshard/nn/gradient_hook.h"
#include "fullshard/nn/replayed_unit.h"
#include "fullshard/nn/unit.h"
#include "recording_hooks.h"

namespace fullshard::nn {
namespace {

using at::Tensor;

struct DropBlockImpl : Unit {
  explicit DropBlockImpl(int64_t width) {
    up = register_module("up", torch::nn::Linear(width, 2 * width));
    down = register_module("down", torch::nn::Linear(2 * width, width));
  }
  Tensor forward(Tensor x) {
    ++runs;
    return x + down(at::dropout(at::gelu(up(x)), 0.5, true));
  }
  torch::nn::Linear up{nullptr}, down{nullptr};
  int runs = 0;
};
FULLSHARD_UNIT(DropBlock);

struct StackImpl : Unit {
  explicit StackImpl(int64_t width) {
    first = register_module("first", DropBlock(width));
    second = register_module("second", DropBlock(width));
    scale = register_parameter("scale", at::ones({width}));
  }
  Tensor forward(Tensor x) { return second(first(x)) * scale; }
  DropBlock first{nullptr}, second{nullptr};
  Tensor scale;
};
FULLSHARD_UNIT(Stack);

// The gradients of x and of all parameters of a loss, from the same seed.
template <class Module, class Loss>
std::vector<Tensor> gradients_of(Module& module, Tensor x, const Loss& loss) {
  at::manual_seed(7);
  x = x.detach().requires_grad_(x.requires_grad());
  module->zero_grad();
  const Tensor value = loss(x);
  value.backward();
  std::vector<Tensor> gradients{value.detach(), x.grad()};
  for (const Tensor& parameter : module->parameters())
    gradients.push_back(parameter.grad().clone());
  gradients.push_back(at::rand({3}, x.options()));  // the generator has gone equally far
  return gradients;
}

void expect_same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << i;
    EXPECT_TRUE(!a[i].defined() || at::equal(a[i], b[i])) << i;
  }
}

TEST(Recompute, GivesTheSameBitsWithDropout) {
  DropBlock block(4);
  const auto loss = [&](const Tensor& x) { return block(x).pow(2).sum(); };
  for (const bool needs_gradient : {true, false}) {
    const Tensor x = at::rand({3, 4}).requires_grad_(needs_gradient);
    block->set_recompute(false);
    const auto plain = gradients_of(block, x, loss);
    block->set_recompute(true);
    block->runs = 0;
    expect_same_bits(plain, gradients_of(block, x, loss));
    EXPECT_EQ(block->runs, 2);
  }
}

TEST(Recompute, GivesTheSameBitsOnCuda) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no CUDA device";
  DropBlock block(4);
  block->to(at::kCUDA);
  const Tensor x = at::rand({3, 4}).to(at::kCUDA).requires_grad_(true);
  const auto loss = [&](const Tensor& input) { return block(input).pow(2).sum(); };
  const auto plain = gradients_of(block, x, loss);
  block->set_recompute(true);
  expect_same_bits(plain, gradients_of(block, x, loss));
}

TEST(Recompute, MayBeCalledTwice) {
  DropBlock block(4);
  const Tensor x = at::rand({3, 4}).requires_grad_(true);
  const auto loss = [&](const Tensor& input) { return block(block(input)).sum(); };
  const auto plain = gradients_of(block, x, loss);
  block->set_recompute(true);
  int fired = 0;
  set_gradient_hook(block->up->weight, [&](const Tensor&) { ++fired; });
  const auto recomputed = gradients_of(block, x, loss);
  EXPECT_EQ(fired, 2);
  ASSERT_EQ(plain.size(), recomputed.size());
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_TRUE(at::allclose(plain[i], recomputed[i], 1e-5));
}

TEST(Recompute, Nests) {
  Stack stack(4);
  const Tensor x = at::rand({3, 4}).requires_grad_(true);
  const auto loss = [&](const Tensor& input) { return stack(input).pow(2).sum(); };
  const auto plain = gradients_of(stack, x, loss);
  stack->set_recompute(true);
  stack->first->set_recompute(true);
  stack->first->runs = 0;
  expect_same_bits(plain, gradients_of(stack, x, loss));
  EXPECT_EQ(stack->first->runs, 3);  // recorded, recorded again in the replay, replayed
}

struct AskingImpl : Unit {
  Tensor forward(Tensor x) {
    answers.push_back(is_replayed(*this));
    return x * 2;
  }
  std::vector<bool> answers;
};
FULLSHARD_UNIT(Asking);

struct OuterAskingImpl : Unit {
  OuterAskingImpl() { inner = register_module("inner", Asking()); }
  Tensor forward(Tensor x) {
    answers.push_back(is_replayed(*this));
    const auto result = inner(x) + 1;
    answers.push_back(is_replayed(*this));
    return result;
  }
  Asking inner{nullptr};
  std::vector<bool> answers;
};
FULLSHARD_UNIT(OuterAsking);

// Its result is what nobody reads, not that of a unit inside it, which it goes on to use.
TEST(Recompute, TellsTheUnitThatIsReplayedAndNoOther) {
  OuterAsking outer;
  outer->set_recompute(true);
  outer(at::ones({2}).requires_grad_()).sum().backward();
  EXPECT_EQ(outer->answers, (std::vector{false, false, true, true}));
  EXPECT_EQ(outer->inner->answers, (std::vector{false, false}));
  outer->answers.clear();
  outer->inner->answers.clear();
  outer->inner->set_recompute(true);
  outer(at::ones({2}).requires_grad_()).sum().backward();
  // Recorded, recorded once more in the outer replay, then replayed itself.
  EXPECT_EQ(outer->answers, (std::vector{false, false, true, true}));
  EXPECT_EQ(outer->inner->answers, (std::vector{false, false, true}));
  EXPECT_FALSE(is_replayed(*outer));
}

TEST(Recompute, TellsTheHooks) {
  Events log;
  RecordingHooks outer("outer", &log), inner("inner", &log);
  Stack stack(4);
  stack->set_hooks(&outer);
  stack->set_recompute(true);
  stack->first->set_hooks(&inner);
  const Tensor y = stack(at::rand({3, 4}));
  EXPECT_EQ(log, (Events{"outer before", "outer enter record", "inner before", "inner after",
                         "outer leave", "outer after"}));
  log.clear();
  y.sum().backward();
  EXPECT_EQ(log, (Events{"outer enter replay", "inner before", "inner after", "outer leave"}));
  ASSERT_EQ(outer.ids.size(), 2);
  EXPECT_EQ(outer.ids[0], outer.ids[1]);
  EXPECT_TRUE(outer.outputs.at(0).is_same(y));
  stack(at::rand({3, 4}));
  EXPECT_NE(outer.ids[2], outer.ids[0]);
}

TEST(Recompute, IsOffWithoutGradientsAndWhereNothingNeedsOne) {
  DropBlock block(4);
  RecordingHooks hooks;
  block->set_hooks(&hooks);
  block->set_recompute(true);
  {
    const at::NoGradGuard no_gradients;
    block(at::rand({3, 4}));
  }
  for (Tensor& parameter : block->parameters()) parameter.requires_grad_(false);
  EXPECT_FALSE(block(at::rand({3, 4})).requires_grad());
  EXPECT_EQ(hooks.events, (Events{"before", "after", "before", "after"}));
}

struct Output {
  Tensor used;
  std::tuple<Tensor, std::vector<Tensor>> more;
  Tensor absent;
  int64_t count = 0;
};

struct ManyImpl : Unit {
  ManyImpl() {
    weight = register_parameter("weight", at::full({3}, 2.0));
    table = register_buffer("table", at::full({3}, 5.0));
  }
  Output forward(const Tensor& x, std::optional<Tensor> mask, double power = 2) {
    const Tensor y = (x * weight).pow(power) * (mask ? *mask : at::ones({3}));
    return {y, {y.argmax(), {x, weight, table, y.exp()}}, {}, 7};
  }
  Tensor weight, table;
};
FULLSHARD_UNIT(Many);

TEST(Recompute, GivesStructsBack) {
  Many many;
  many->set_recompute(true);
  const Tensor x = at::rand({3}).requires_grad_(true);
  const Output output = many(x, std::nullopt);
  const auto& [position, list] = output.more;
  EXPECT_EQ(output.count, 7);
  EXPECT_FALSE(output.absent.defined());
  EXPECT_EQ(position.scalar_type(), at::kLong);
  EXPECT_FALSE(position.requires_grad());
  EXPECT_TRUE(at::equal(output.used, (x * 2).pow(2)));
  EXPECT_TRUE(at::equal(list[0], x));
  EXPECT_FALSE(list[0].is_same(x));  // a view of the input, on the node
  EXPECT_EQ(list[0].data_ptr(), x.data_ptr());
  EXPECT_TRUE(many->weight.is_leaf());
  EXPECT_FALSE(many->table.requires_grad());
}

TEST(Recompute, TakesAnySubsetOfOutputGradients) {
  Many many;
  const Tensor mask = at::full({3}, 0.5);
  using Loss = std::function<Tensor(const Tensor&)>;
  const std::vector<Loss> losses{
      [&](const Tensor& x) { return many(x, mask, 3).used.sum(); },
      [&](const Tensor& x) { return std::get<1>(many(x, mask).more)[3].sum(); },
      [&](const Tensor& x) {
        const auto list = std::get<1>(many(x, mask).more);
        return (list[0] * list[1] * list[2]).sum();
      },
      [&](const Tensor& x) {
        const Output output = many(x, std::nullopt);
        return output.used.sum() + (std::get<1>(output.more)[0] * 3).sum();
      }};
  const Tensor x = at::rand({3}).requires_grad_(true);
  for (const Loss& loss : losses) {
    many->set_recompute(false);
    const auto with_zeros = [&](const Tensor& t) { return loss(t) + 0 * many->weight.sum(); };
    const auto plain = gradients_of(many, x, with_zeros);
    many->set_recompute(true);
    expect_same_bits(plain, gradients_of(many, x, with_zeros));
  }
}

struct ListImpl : Unit {
  std::vector<Tensor> forward(std::map<std::string, Tensor> named, std::pair<Tensor, int> pair) {
    return {named.at("a") * named.at("b"), pair.first.view({1, -1}) * pair.second};
  }
};
FULLSHARD_UNIT(List);

TEST(Recompute, ReplacesTensorsInsideArguments) {
  List list;
  list->set_recompute(true);
  const Tensor a = at::full({2}, 2.0).requires_grad_(true),
               b = at::full({2}, 3.0).requires_grad_(true);
  const auto outputs = list(std::map<std::string, Tensor>{{"a", a}, {"b", b}}, std::pair(a, 5));
  (outputs[0].sum() + outputs[1].sum()).backward();
  EXPECT_TRUE(at::equal(a.grad(), at::full({2}, 8.0)));
  EXPECT_TRUE(at::equal(b.grad(), at::full({2}, 2.0)));
}

TEST(Recompute, FreesTheInputsAfterBackward) {
  DropBlock block(4);
  block->set_recompute(true);
  Tensor x = at::rand({3, 4});
  const c10::weak_intrusive_ptr<c10::TensorImpl> watch(x.getIntrusivePtr());
  const Tensor y = block(x).sum();
  x.reset();
  EXPECT_FALSE(watch.expired());
  y.backward();
  EXPECT_TRUE(watch.expired());  // although y still holds the graph
  EXPECT_THROW(y.backward(), c10::Error);
}

TEST(Recompute, KeepsTheUnitAlive) {
  Tensor y, weight;
  {
    DropBlock block(4);
    block->set_recompute(true);
    weight = block->up->weight;
    y = block(at::rand({3, 4}));
  }
  y.sum().backward();
  EXPECT_TRUE(weight.grad().defined());
}

TEST(Recompute, ChecksTheVersionOfItsInputs) {
  DropBlock block(4);
  block->set_recompute(true);
  Tensor x = at::rand({3, 4});
  const Tensor y = block(x).sum();
  x.add_(1);
  EXPECT_THROW(y.backward(), c10::Error);
}

struct InPlaceImpl : Unit {
  Tensor forward(Tensor x) { return x.mul_(2); }
};
FULLSHARD_UNIT(InPlace);

struct BorrowsImpl : Unit {
  Tensor forward(std::span<const int64_t> sizes, Tensor x) { return x.view(sizes[0]); }
};
FULLSHARD_UNIT(Borrows);

struct FickleImpl : Unit {
  std::vector<Tensor> forward(Tensor x) { return std::vector<Tensor>(++calls, x * 2); }
  int calls = 0;
};
FULLSHARD_UNIT(Fickle);

TEST(Recompute, RefusesWhatItCannotRepeat) {
  InPlace in_place;
  in_place->set_recompute(true);
  const Tensor x = at::ones({2}).requires_grad_(true);
  EXPECT_EQ(error_of([&] { in_place(x * 1); }),
            "unit InPlace: its forward writes one of its inputs in place, so backward could not "
            "compute it again; clone the input first, or turn recompute off");
  Borrows borrows;
  borrows->set_recompute(true);
  const std::vector<int64_t> sizes{2};
  EXPECT_EQ(error_of([&] { borrows(std::span<const int64_t>(sizes), x); }),
            "unit Borrows: an argument of forward cannot be kept until backward: it cannot be "
            "copied or only borrows its elements; pass a value such as std::vector, or turn "
            "recompute off");
  Fickle fickle;
  fickle->set_recompute(true);
  const Tensor y = fickle(x)[0].sum();
  EXPECT_EQ(error_of([&] { y.backward(); }),
            "unit Fickle: its forward gave 1 tensors, but 2 when it was recomputed in backward; it "
            "must depend on its arguments and parameters only, or recompute must be off");
}

struct ShiftyImpl : Unit {
  Tensor forward(Tensor x) { return (x * 2).narrow(0, 0, 2 - calls++).to(dtype); }
  int64_t calls = 0;
  at::ScalarType dtype = at::kFloat;
};
FULLSHARD_UNIT(Shifty);

TEST(Recompute, RefusesAReplayWithOtherShapesOrDtypes) {
  Shifty shifty;
  shifty->set_recompute(true);
  const Tensor x = at::ones({2}).requires_grad_(true);
  const Tensor y = shifty(x).sum();
  EXPECT_EQ(error_of([&] { y.backward(); }),
            "unit Shifty: output 0 of its forward was Float [2], but Float [1] when it was "
            "recomputed in backward; it must depend on its arguments and parameters only, or "
            "recompute must be off");
  shifty->calls = 0;
  const Tensor z = shifty(x).sum();
  shifty->calls = 0;
  shifty->dtype = at::kDouble;
  EXPECT_EQ(error_of([&] { z.backward(); }),
            "unit Shifty: output 0 of its forward was Float [2], but Double [2] when it was "
            "recomputed in backward; it must depend on its arguments and parameters only, or "
            "recompute must be off");
}

TEST(Recompute, AutogradGradReachesTheInputsAndNoParameter) {
  DropBlock block(4);
  const Tensor x = at::rand({3, 4}).requires_grad_(true);
  at::manual_seed(7);
  const Tensor expected = torch::autograd::grad({block(x).pow(2).sum()}, {x})[0];
  block->set_recompute(true);
  at::manual_seed(7);
  const Tensor gradient = torch::autograd::grad({block(x).pow(2).sum()}, {x})[0];
  EXPECT_TRUE(at::equal(gradient, expected));
  EXPECT_FALSE(x.grad().defined());
  for (const Tensor& parameter : block->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST(Recompute, BackwardWithInputsReachesThoseOnly) {
  DropBlock block(4);
  const Tensor x = at::rand({3, 4}).requires_grad_(true);
  const auto loss = [&](const Tensor& input) { return block(input).pow(2).sum(); };
  const auto plain = gradients_of(block, x, loss);
  block->zero_grad();
  block->set_recompute(true);
  const Tensor again = x.detach().requires_grad_(true);
  at::manual_seed(7);
  torch::autograd::backward({loss(again)}, {}, std::nullopt, false, {again, block->down->weight});
  EXPECT_TRUE(at::equal(again.grad(), plain[1]));
  EXPECT_TRUE(at::equal(block->down->weight.grad(), plain[4]));
  EXPECT_FALSE(block->up->weight.grad().defined());
}

TEST(Recompute, AutogradGradOfAParameterIsAnError) {
  DropBlock block(4);
  block->set_recompute(true);
  const Tensor x = at::rand({3, 4}).requires_grad_(true);
  const Tensor y = block(x).sum();
  EXPECT_EQ(error_of([&] {
              torch::autograd::grad({y}, {x, block->up->weight}, {}, std::nullopt, false, true);
            }),
            "unit DropBlock: autograd::grad cannot give the gradient of a parameter of a "
            "recomputed unit; call backward, or turn recompute off");
}

TEST(Recompute, RefusesSecondDerivatives) {
  DropBlock block(4);
  block->set_recompute(true);
  const Tensor x = at::rand({3, 4}).requires_grad_(true);
  const Tensor y = block(x).sum();
  EXPECT_EQ(
      error_of([&] { torch::autograd::grad({y}, {x}, {}, std::nullopt, /*create_graph=*/true); }),
      "unit DropBlock: second derivatives (create_graph) do not pass through a recomputed "
      "unit; turn recompute off");
}

TEST(Recompute, LeavesThePassWhenTheBodyThrows) {
  struct FailsImpl : Unit {
    Tensor forward(Tensor x) {
      if (++calls == fails_at) throw std::runtime_error("no");
      return x * 2;
    }
    int calls = 0, fails_at = 1;
  };
  UnitHolder<FailsImpl> fails;
  RecordingHooks hooks;
  fails->set_hooks(&hooks);
  fails->set_recompute(true);
  const Tensor x = at::ones({2}).requires_grad_(true);
  EXPECT_THROW(fails(x), std::runtime_error);
  EXPECT_EQ(hooks.events, (Events{"before", "enter record", "leave", "failed"}));
  fails->fails_at = 3;
  const Tensor y = fails(x).sum();
  hooks.events.clear();
  EXPECT_THROW(y.backward(), std::runtime_error);
  EXPECT_EQ(hooks.events, (Events{"enter replay", "leave"}));
}

}  // namespace
}  // namespace fullshard::nn
