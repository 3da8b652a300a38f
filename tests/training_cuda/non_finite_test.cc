// SPDX-License-Identifier: Apache-2.0
// Values of a GPU that are not finite: which unit made them is known without waiting at each one.
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fullshard/base/error.h"
#include "fullshard/comm/world/fake_world.h"
#include "fullshard/engine/gradients/device_flags.h"
#include "fullshard/engine/gradients/non_finite_watch.h"
#include "fullshard/memory/device_graph.h"
#include "fullshard/nn/unit.h"
#include "fullshard/ops/products/linear.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/stepper.h"
#include "tests/gpu.h"

namespace fullshard::testing {
namespace {

TEST(DeviceFlags, AreRaisedByInfinitiesAndNanAlone) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    for (const int64_t numel : {1, 7, 1024, 1'000'003}) {
      SCOPED_TRACE(std::string(c10::toString(dtype)) + ", " + std::to_string(numel));
      engine::DeviceFlags flags;
      const auto options = at::TensorOptions().device(kGpu).dtype(dtype);
      const auto largest = dtype == at::kHalf ? 65504.0 : 3e38;
      const auto sound = at::ones({numel}, options) * largest;
      flags.look_at(0, sound);
      EXPECT_EQ(flags.first(), std::nullopt);
      for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity()}) {
        auto spoiled = sound.clone();
        spoiled.narrow(0, numel - 1, 1).fill_(bad);
        flags.look_at(3, sound);
        flags.look_at(5, spoiled);
        flags.look_at(7, spoiled);
        EXPECT_EQ(flags.first(), 5);
        flags.clear();
        EXPECT_EQ(flags.first(), std::nullopt);
      }
    }
  }
}

// A graph raises the flags of its capture in every step, whatever the host looked at meanwhile.
TEST(NonFiniteWatch, KnowsWhatAGraphLooksAt) {
  const auto values = at::ones({64}, at::TensorOptions().device(kGpu)), sound = values.clone();
  engine::NonFiniteWatch watch;
  watch.after_forward("first", {sound});  // the flags' memory is there before the graph
  watch.start_over();
  memory::DeviceGraph graph(kGpu);
  graph.capture([&] { watch.after_forward("of the graph", {values}); }, nullptr);
  watch.keep_sights();
  watch.start_over();
  watch.after_forward("of the host", {sound});
  values.fill_(std::nan(""));
  graph.replay();
  ASSERT_TRUE(watch.first().has_value());
  EXPECT_EQ(watch.first()->where, "of the graph");
}

enum class GpuFault { none, output, output_gradient };

struct FaultyBlockImpl : Unit {
  FaultyBlockImpl() : linear(register_module("linear", Linear(16, 16))) {}

  at::Tensor forward(const at::Tensor& x) {
    auto y = linear(x);
    if (fault == GpuFault::output) y = y * std::nan("");
    if (fault == GpuFault::output_gradient) {
      y.register_hook([](const at::Tensor& gradient) { return gradient * INFINITY; });
    }
    return x + y.tanh();
  }

  Linear linear{nullptr};
  GpuFault fault = GpuFault::none;
};
FULLSHARD_UNIT(FaultyBlock);

struct FaultyChainImpl : Unit {
  FaultyChainImpl() {
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), FaultyBlock()));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& block : blocks) x = block(x);
    return x;
  }
  std::vector<FaultyBlock> blocks;
};
FULLSHARD_UNIT(FaultyChain);

// What is said of a step whose second block is at fault, after a sound one.
std::string reason_on_gpu(GpuFault fault) {
  FaultyChain model;
  model->to(kGpu);
  auto sharded = shard(model, World::single(kGpu));
  AdamW optimizer(sharded, {.lr = 1e-3});
  Stepper stepper(sharded, optimizer, {.on_breakdown = OnBreakdown::go_on});
  std::string reason;
  for (const bool is_faulty : {false, true, false}) {
    model->blocks[1]->fault = is_faulty ? fault : GpuFault::none;
    stepper.backward(model(at::randn({4, 16}, at::TensorOptions().device(kGpu))).square().mean());
    const auto report = stepper.step();
    EXPECT_EQ(report.skipped, is_faulty);
    if (is_faulty) reason = report.reason;
  }
  return reason;
}

// What a step keeps for all steps is made in the first forward, whatever mode that is in.
TEST(CudaStepper, TrainsAfterAFirstForwardInInferenceMode) {
  FaultyChain model;
  model->to(kGpu);
  auto sharded = shard(model, World::single(kGpu));
  AdamW optimizer(sharded, {.lr = 1e-3});
  Stepper stepper(sharded, optimizer);
  const auto input = at::randn({4, 16}, at::TensorOptions().device(kGpu));
  {
    const c10::InferenceMode mode;
    model(input.clone());
  }
  for (int step = 0; step < 2; ++step) {
    stepper.backward(model(input).square().mean());
    EXPECT_FALSE(stepper.step().skipped);
    optimizer.zero_grad();
  }
}

// Ranks that keep their own gradients know their norm on the host alone (OneBitAdam, frozen).
TEST(CudaStepper, StepsWhereRanksKeepTheirGradients) {
  FaultyChain model;
  model->to(kGpu);
  const World world = comm::fake_world({.size = 2, .device = kGpu});
  auto sharded = shard(model, world, {.sharding = {.strategy = Strategy::no_shard}});
  AdamW optimizer(sharded, {.lr = 1e-3});
  Stepper stepper(sharded, optimizer, {.max_grad_norm = 1.0});
  sharded.set_gradient_reduction(false);
  stepper.backward(model(at::randn({4, 16}, at::TensorOptions().device(kGpu))).square().mean());
  EXPECT_GT(stepper.step().grad_norm, 0);
}

TEST(CudaStepper, NamesTheUnitThatMadeANanInForwardOrBackward) {
  EXPECT_NE(reason_on_gpu(GpuFault::output)
                .find("the loss is nan on rank 0; the first value that is not finite appeared in "
                      "the forward of unit 'block1' on rank 0"),
            std::string::npos)
      << reason_on_gpu(GpuFault::output);
  EXPECT_EQ(reason_on_gpu(GpuFault::output_gradient),
            "step 2: gradients are not finite, first in the backward of unit 'block1' "
            "on rank 0");
}

}  // namespace
}  // namespace fullshard::testing
