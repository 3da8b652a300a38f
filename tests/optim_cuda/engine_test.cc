// SPDX-License-Identifier: Apache-2.0
// Whole steps of a sharded model on the GPU beside the same steps on the CPU.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <tuple>

#include "fullshard/base/error.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/nn/unit.h"
#include "fullshard/optim/adagrad.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/lamb.h"
#include "fullshard/optim/lion.h"
#include "fullshard/optim/one_bit_adam.h"
#include "fullshard/optim/sgd.h"
#include "fullshard/optim/stepper.h"
#include "tests/gpu.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// The loss is Σ w·x: x is the gradient of w, whatever the device adds up.
struct PartImpl : Unit {
  explicit PartImpl(int64_t width) {
    weight = register_parameter("weight", at::zeros({3, width}));
    bias = register_parameter("bias", at::zeros({width}));
  }
  at::Tensor forward(at::Tensor x) {
    const int64_t width = bias.numel();
    return (weight * x.narrow(0, 0, 3 * width).view({3, width})).sum() +
           (bias * x.narrow(0, 3 * width, width)).sum();
  }
  at::Tensor weight, bias;
};
FULLSHARD_UNIT(Part);

constexpr int64_t kWidths[] = {5, 1000, 33};
constexpr int64_t kNumel = 4 * (5 + 1000 + 33);

struct ModelImpl : Unit {
  ModelImpl() {
    for (size_t i = 0; i < std::size(kWidths); ++i) {
      modules_in_turn.push_back(register_module("part" + std::to_string(i), Part(kWidths[i])));
    }
  }
  at::Tensor forward(at::Tensor x) {
    auto sum = at::zeros({}, x.options());
    int64_t first = 0;
    for (auto& part : modules_in_turn) {
      const int64_t numel = 4 * part->bias.numel();
      sum = sum + part(x.narrow(0, first, numel));
      first += numel;
    }
    return sum;
  }
  std::vector<Part> modules_in_turn;
};
FULLSHARD_UNIT(Model);

Model make_model() {
  Model model;
  at::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(5);
  for (auto& parameter : model->parameters()) {
    parameter.copy_(at::randn(parameter.sizes(), generator) * 0.5);
  }
  return model;
}

at::Tensor inputs(int step, at::Device device) {
  auto generator = at::detail::createCPUGenerator(100 + static_cast<uint64_t>(step));
  return (at::randint(-127, 128, {kNumel}, generator, at::kFloat) / 64).to(device);
}

using Make = std::function<std::unique_ptr<Optimizer>(ShardedModel&)>;

struct Outcome {
  std::map<std::string, at::Tensor> masters;
  std::vector<double> norms;
};

std::map<std::string, at::Tensor> masters_of(const ShardedModel& sharded) {
  std::map<std::string, at::Tensor> masters;
  for (const auto& piece : sharded.pieces()) masters[piece.name] = piece.master.cpu().clone();
  return masters;
}

Outcome train(at::Device device, const Make& make, const ShardOptions& options = {}) {
  auto model = make_model();
  auto sharded = shard(model, World::single(device), options);
  auto optimizer = make(sharded);
  Stepper stepper(sharded, *optimizer, {.max_grad_norm = 1.0});
  const auto dtype = options.param_dtype.value_or(at::kFloat);
  Outcome outcome;
  for (int step = 0; step < 4; ++step) {
    stepper.backward(model(inputs(step, device).to(dtype)));
    outcome.norms.push_back(stepper.step().grad_norm);
  }
  outcome.masters = masters_of(sharded);
  return outcome;
}

void expect_same_engine(const Outcome& cuda, const Outcome& cpu, const std::string& what) {
  EXPECT_EQ(cuda.norms, cpu.norms) << what;
  for (const auto& [name, master] : cpu.masters) {
    const auto& found = cuda.masters.at(name);
    EXPECT_TRUE(at::equal(found, master)) << what << ", " << name << ": largest difference "
                                          << (found - master).abs().max().item<double>();
  }
}

template <class Kind, class Options>
Make maker(at::ScalarType states, Options options) {
  options.state_dtype = states;
  options.rules = {{.pattern = "bias", .weight_decay = 0.0, .lr_scale = 0.5}};
  return [options](ShardedModel& model) { return std::make_unique<Kind>(model, options); };
}

std::map<std::string, Make> makers(at::ScalarType states = at::kFloat) {
  return {{"AdamW", maker<AdamW>(states, AdamWOptions{.lr = 1e-2})},
          {"Adam", maker<AdamW>(states, AdamWOptions{.lr = 1e-2, .adam_w_mode = false})},
          {"SGD", maker<Sgd>(states, SgdOptions{.lr = 1e-2, .momentum = 0.9, .weight_decay = 0.1})},
          {"plain SGD", maker<Sgd>(states, SgdOptions{.lr = 1e-2})},
          {"Adagrad", maker<Adagrad>(states, AdagradOptions{.initial_accumulator_value = 0.1})},
          {"Lion", maker<Lion>(states, LionOptions{.lr = 1e-3, .weight_decay = 0.1})},
          {"LAMB", maker<Lamb>(states, LambOptions{.lr = 1e-2, .weight_decay = 0.1})}};
}

TEST(CudaEngine, StepsAsOnTheCpu) {
  for (const auto& [name, make] : makers()) {
    expect_same_engine(train(at::Device(at::kCUDA, 0), make), train(at::kCPU, make), name);
  }
}

TEST(CudaEngine, StepsBf16ModelsAsOnTheCpu) {
  const ShardOptions options{.param_dtype = at::kBFloat16};
  for (const auto& [name, make] : makers()) {
    expect_same_engine(train(at::Device(at::kCUDA, 0), make, options),
                       train(at::kCPU, make, options), name + " in bf16");
  }
}

// Masters in halves are made whole for these.
TEST(CudaEngine, StepsBf16StatesAsOnTheCpu) {
  const ShardOptions options{.param_dtype = at::kBFloat16};
  for (const auto& [name, make] : makers(at::kBFloat16)) {
    expect_same_engine(train(at::Device(at::kCUDA, 0), make, options),
                       train(at::kCPU, make, options), name + " with bf16 states");
  }
}

TEST(CudaEngine, KeepsBf16MastersInHalves) {
  const auto held = [](const AdamWOptions& adamw, const std::optional<bool>& in_halves) {
    auto model = make_model();
    auto sharded = shard(model, World::single(kGpu),
                         {.param_dtype = at::kBFloat16, .master_in_halves = in_halves});
    AdamW optimizer(sharded, adamw);
    model(inputs(0, kGpu).to(at::kBFloat16)).backward();
    optimizer.step();
    return sharded.ledger().held(tiers::Purpose::master) / sharded.numel();
  };
  EXPECT_EQ(held({}, {}), 2);
  EXPECT_EQ(held({}, false), 4);
  EXPECT_EQ(held({.state_dtype = at::kBFloat16}, {}), 4);  // there is no kernel for both
}

// 2^16 and more are infinite in fp16, so such steps are left out.
TEST(CudaEngine, ScalesLossesOfFp16AsTheCpu) {
  using Fate = std::tuple<bool, double, double>;  // skipped, loss scale, norm
  const auto fates_on = [](at::Device device, Outcome& outcome) {
    auto model = make_model();
    auto sharded = shard(model, World::single(device), {.param_dtype = at::kHalf});
    AdamW optimizer(sharded, {.lr = 1e-2});
    Stepper stepper(sharded, optimizer,
                    {.max_grad_norm = 1.0,
                     .loss_scale = LossScaleOptions{
                         .initial_scale_power = 18, .loss_scale_window = 2, .hysteresis = 1}});
    std::vector<Fate> fates;
    for (int step = 0; step < 7; ++step) {
      stepper.backward(model(inputs(step, device).to(at::kHalf)));
      const auto report = stepper.step();
      fates.emplace_back(report.skipped, report.loss_scale, report.skipped ? 0 : report.grad_norm);
      EXPECT_THAT(report.reason, HasSubstr(report.skipped ? "overflowed at loss scale" : ""));
    }
    EXPECT_EQ(optimizer.num_steps(), 3);
    outcome.masters = masters_of(sharded);
    return fates;
  };
  Outcome cpu, cuda;
  const auto expected = fates_on(at::kCPU, cpu);
  std::vector<std::pair<bool, double>> course;
  for (const auto& [skipped, scale, norm] : expected) course.emplace_back(skipped, scale);
  EXPECT_THAT(course, ElementsAre(Pair(true, 262144), Pair(true, 131072), Pair(true, 65536),
                                  Pair(false, 32768), Pair(false, 32768), Pair(false, 32768),
                                  Pair(true, 65536)));
  EXPECT_EQ(fates_on(kGpu, cuda), expected);
  expect_same_engine(cuda, cpu, "fp16");
}

TEST(CudaEngine, CutsStepsIntoSubGroups) {
  const ShardOptions options{.sub_group_size = 1001};
  const auto make = makers().at("AdamW");
  expect_same_engine(train(at::Device(at::kCUDA, 0), make, options), train(at::kCPU, make),
                     "sub groups");
}

struct OnCuda {
  OnCuda()
      : sharded(shard(model, World::single(at::Device(at::kCUDA, 0)))),
        optimizer(sharded, {.lr = 1e-2}),
        stepper(sharded, optimizer, {.max_grad_norm = 1.0, .on_breakdown = OnBreakdown::go_on}) {}

  void backward(int step, bool with_nan = false) {
    auto x = inputs(step, at::Device(at::kCUDA, 0));
    if (with_nan) x[4 * 5 + 10] = std::numeric_limits<float>::quiet_NaN();  // part1.weight's
    stepper.backward(model(x));
  }

  Model model = make_model();
  ShardedModel sharded;
  AdamW optimizer;
  Stepper stepper;
};

TEST(CudaEngine, LeavesOutAStepThatOverflowedAndNamesTheUnit) {
  OnCuda run;
  const auto before = masters_of(run.sharded);
  run.backward(0, true);
  const auto report = run.stepper.step();
  EXPECT_TRUE(report.skipped);
  EXPECT_THAT(report.reason, HasSubstr("the forward of unit 'part1' on rank 0"));
  EXPECT_EQ(run.optimizer.num_steps(), 0);
  for (const auto& [name, master] : masters_of(run.sharded)) {
    EXPECT_TRUE(at::equal(master, before.at(name))) << name;
  }
}

TEST(CudaEngine, StepsWithoutTheNormAsWithIt) {
  OnCuda with, without;
  for (int step = 0; step < 3; ++step) {
    with.backward(step);
    (void)with.stepper.step();
    without.backward(step);
    EXPECT_TRUE(std::isnan(without.stepper.step_without_norm().grad_norm));
  }
  const auto expected = masters_of(with.sharded);
  for (const auto& [name, master] : masters_of(without.sharded)) {
    EXPECT_TRUE(at::equal(master, expected.at(name)))
        << name << ": largest difference "
        << (master - expected.at(name)).abs().max().item<double>();
  }
}

TEST(CudaEngine, LeavesOutAStepOnTheDevice) {
  OnCuda run;
  const auto before = masters_of(run.sharded);
  run.backward(0, true);
  (void)run.stepper.step_without_norm();
  for (const auto& [name, master] : masters_of(run.sharded)) {
    EXPECT_TRUE(at::equal(master, before.at(name))) << name;
  }
}

// Bits while it warms up; after the freeze libtorch's operators add the momentum.
TEST(CudaEngine, StepsOneBitAdamAsOnTheCpu) {
  const auto make = [](int64_t freeze_step) {
    return maker<OneBitAdam>(at::kFloat, OneBitAdamOptions{.lr = 1e-2, .freeze_step = freeze_step});
  };
  expect_same_engine(train(kGpu, make(100)), train(at::kCPU, make(100)), "OneBitAdam warming up");
  const auto cuda = train(kGpu, make(2)), cpu = train(at::kCPU, make(2));
  for (const auto& [name, master] : cpu.masters) {
    EXPECT_TRUE(at::allclose(cuda.masters.at(name), master, 1e-5, 1e-6)) << name;
  }
}

// Chunks of 64 elements of two fp32 states and a lower half.
tiers::TierOptions in_host_memory() {
  return {.optimizer = {.tier = tiers::Tier::host, .buffer_count = 3},
          .window_bytes = 64 * 10,
          .stepping = tiers::Stepping::device};
}

TEST(CudaOffload, StepsAsWithoutIt) {
  for (const auto compute : {at::kFloat, at::kBFloat16}) {
    for (const auto states : {at::kFloat, at::kBFloat16}) {
      for (const auto& [name, make] : makers(states)) {
        ShardOptions options{.param_dtype = compute};
        const auto expected = train(kGpu, make, options);
        const auto expect_same = [&](const std::string& what) {
          expect_same_engine(train(kGpu, make, options), expected,
                             name + " in " + c10::toString(compute) + ", states in " +
                                 c10::toString(states) + ", " + what);
        };
        for (const double share : {0.0, 0.02, 1.0}) {
          options.offload = in_host_memory();
          options.offload.ratio = 1 - share;
          expect_same("share " + std::to_string(share));
        }
        options.offload = in_host_memory();
        for (const double share : {0.5, 1.0}) {
          options.offload.host_share = share;
          expect_same("updated by the host, share " + std::to_string(share));
        }
      }
    }
  }
}

struct OffloadedOnCuda {
  explicit OffloadedOnCuda(const tiers::TierOptions& offload)
      : sharded(
            shard(model, World::single(kGpu), {.param_dtype = at::kBFloat16, .offload = offload})),
        optimizer(sharded, {.lr = 1e-2}),
        stepper(sharded, optimizer, {.max_grad_norm = 1.0, .on_breakdown = OnBreakdown::go_on}) {}

  void backward(int step, bool with_nan = false) {
    auto x = inputs(step, kGpu).to(at::kBFloat16);
    if (with_nan) x[4 * 5 + 10] = std::numeric_limits<float>::quiet_NaN();
    stepper.backward(model(x));
  }

  Model model = make_model();
  ShardedModel sharded;
  AdamW optimizer;
  Stepper stepper;
};

// The host runs ahead of the device by several steps, and sets other rates meanwhile.
TEST(CudaOffload, StepsWithoutWaitingForAnything) {
  OffloadedOnCuda with(in_host_memory()), without({});
  for (int step = 0; step < 6; ++step) {
    for (auto* run : {&with, &without}) {
      run->backward(step, step == 3);
      (void)run->stepper.step_without_norm();
      run->optimizer.set_lr(1e-2 / (step + 2));
    }
  }
  const auto expected = masters_of(without.sharded);
  for (const auto& [name, master] : masters_of(with.sharded)) {
    EXPECT_TRUE(at::equal(master, expected.at(name))) << name;
  }
  for (int group = 0; group < with.sharded.num_groups(); ++group) {
    for (int k = 0; k < 2; ++k) {
      EXPECT_TRUE(with.optimizer.state(group, k).is_cpu());
      EXPECT_TRUE(
          at::equal(with.optimizer.state(group, k), without.optimizer.state(group, k).cpu()));
    }
  }
}

TEST(CudaOffload, LeavesOutAStepThatOverflowed) {
  OffloadedOnCuda run(in_host_memory());
  run.backward(0);
  (void)run.stepper.step();
  const auto before = masters_of(run.sharded);
  const auto state = run.optimizer.state(1, 1).clone();
  run.backward(1, true);
  EXPECT_TRUE(run.stepper.step().skipped);
  EXPECT_EQ(run.optimizer.num_steps(), 1);
  for (const auto& [name, master] : masters_of(run.sharded)) {
    EXPECT_TRUE(at::equal(master, before.at(name))) << name;
  }
  EXPECT_TRUE(at::equal(run.optimizer.state(1, 1), state));
}

TEST(CudaOffload, CountsEveryByteAndPinsNothingAfterTheSecondStep) {
  OffloadedOnCuda run(in_host_memory());
  int64_t numel = 0;
  for (int group = 0; group < run.sharded.num_groups(); ++group) {
    numel += run.sharded.shard_numel(group);
  }
  const auto& ledger = run.sharded.ledger();
  EXPECT_EQ(ledger.held(tiers::Purpose::master), 0);
  EXPECT_EQ(ledger.held(tiers::Purpose::master, tiers::Tier::host), 2 * numel);
  EXPECT_EQ(ledger.held(tiers::Purpose::optimizer, tiers::Tier::host), 8 * numel);
  EXPECT_EQ(ledger.held(tiers::Purpose::optimizer), 3 * 64 * 10);
  EXPECT_TRUE(run.optimizer.state(0, 0).is_pinned());
  int64_t pinned = 0;
  for (int step = 0; step < 5; ++step) {
    const auto before = run.sharded.counters();
    run.backward(step);
    (void)run.stepper.step();
    EXPECT_EQ(run.sharded.counters().states_copied_in - before.states_copied_in, 10 * numel);
    EXPECT_EQ(run.sharded.counters().states_copied_out - before.states_copied_out, 10 * numel);
    const auto allocations =
        engine::EngineAccess::of(run.sharded).tiers().host()->num_allocations();
    if (step < 2) pinned = allocations;
    EXPECT_EQ(allocations, pinned);
  }
}

TEST(CudaOffload, LetsParametersBeReadInForwardsOrAfterSettling) {
  OffloadedOnCuda run(in_host_memory());
  run.backward(0);
  (void)run.stepper.step();
  EXPECT_ANY_THROW((void)run.model->modules_in_turn[0]->bias.sum());
  run.sharded.settle();
  EXPECT_NO_THROW((void)run.model->modules_in_turn[0]->bias.sum());
}

}  // namespace
}  // namespace fullshard::testing
