// SPDX-License-Identifier: Apache-2.0
#include "tests/optim/fixed_gradients.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <optional>

#include "fullshard/optim/lr_scheduler.h"

namespace fullshard::testing {

FixedPartImpl::FixedPartImpl() {
  norm_weight = register_parameter("norm_weight", at::zeros({19}));
  bias = register_parameter("bias", at::zeros({3}));
}

at::Tensor FixedPartImpl::forward(at::Tensor x) {
  return (norm_weight * x.narrow(0, 0, 19)).sum() + (bias * x.narrow(0, 19, 3)).sum();
}

FixedImpl::FixedImpl() {
  weight = register_parameter("weight", at::zeros({4, 11}));
  part = register_module("part", FixedPart());
  tail = register_module("tail", FixedPart());
}

at::Tensor FixedImpl::forward(at::Tensor x) {
  const auto own = (weight * x.narrow(0, 0, 44).view({4, 11})).sum();
  return own + part(x.narrow(0, 44, 22)) + tail(x.narrow(0, 66, 22));
}

Fixed make_fixed(at::ScalarType dtype) {
  Fixed model;
  at::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(5);
  for (auto& parameter : model->parameters()) {
    parameter.copy_(at::randn(parameter.sizes(), generator) * 0.5);
  }
  model->to(dtype);
  return model;
}

at::Tensor fixed_gradients(int step, int rank) {
  auto generator = at::detail::createCPUGenerator(1000 + 10 * step + rank);
  return at::randint(-127, 128, {kFixedNumel}, generator, at::kFloat) / 64;
}

namespace {

Values split(const at::Tensor& flat) {
  return {{"weight", flat.narrow(0, 0, 44).view({4, 11})},
          {"part.norm_weight", flat.narrow(0, 44, 19)},
          {"part.bias", flat.narrow(0, 63, 3)},
          {"tail.norm_weight", flat.narrow(0, 66, 19)},
          {"tail.bias", flat.narrow(0, 85, 3)}};
}

Values empty_values(at::ScalarType dtype) { return split(at::zeros({kFixedNumel}, dtype)); }

void put(Values& values, const PieceView& piece, const at::Tensor& part) {
  values.at(piece.name).view({-1}).narrow(0, piece.begin, piece.numel()).copy_(part);
}

}  // namespace

Values mean_gradients(int step, int ranks) {
  auto sum = at::zeros({kFixedNumel});
  for (int rank = 0; rank < ranks; ++rank) sum += fixed_gradients(step, rank);
  return split(sum * static_cast<float>(1.0 / ranks));
}

double clip_factor(const Values& gradients, double max_norm) {
  double squares = 0;
  for (const auto& [name, gradient] : gradients) {
    squares += gradient.to(at::kDouble).pow(2).sum().item<double>();
  }
  const auto norm = static_cast<float>(std::sqrt(squares));
  return std::min(1.0f, static_cast<float>(max_norm) / (norm + 1e-6f));
}

FixedOutcome train_fixed(const FixedRun& run, const MakeOptimizer& make) {
  FixedOutcome outcome;
  outcome.masters = empty_values(run.dtype);
  std::mutex mutex;
  run_ranks({.ranks = run.ranks}, [&](const World& world) {
    auto model = make_fixed(run.dtype);
    auto sharded = shard(model, world, run.shard);
    auto optimizer = make(sharded);
    std::optional<LrScheduler> scheduler;
    if (run.schedule) scheduler.emplace(run.schedule(), *optimizer);
    const auto compute = run.shard.param_dtype.value_or(run.dtype);
    std::vector<double> norms;
    for (int step = 0; step < run.steps; ++step) {
      model(fixed_gradients(step, world.rank()).to(compute)).backward();
      if (run.clip > 0) norms.push_back(sharded.clip_grad_norm(run.clip));
      optimizer->step();
      optimizer->zero_grad();
      if (scheduler) scheduler->step();
    }
    auto full = sharded.gather_full();
    const std::lock_guard lock(mutex);
    outcome.norms = norms;
    const auto num_states = optimizer->state_names().size();
    while (outcome.states.size() < num_states) {
      outcome.states.push_back(empty_values(optimizer->state(0, 0).scalar_type()));
    }
    for (const auto& piece : sharded.pieces()) {
      put(outcome.masters, piece, piece.master);
      for (size_t i = 0; i < num_states; ++i) {
        put(outcome.states[i], piece,
            optimizer->state(piece.group, static_cast<int>(i))
                .narrow(0, piece.offset, piece.numel()));
      }
      // What computation sees is the cast of the master.
      const auto seen = model->named_parameters()[piece.name].detach().view({-1});
      EXPECT_TRUE(at::equal(seen.narrow(0, piece.begin, piece.numel()), piece.master.to(compute)))
          << piece.name;
    }
  });
  return outcome;
}

Values train_naively(const FixedRun& run, const NaiveStep& step_of) {
  Values values;
  for (const auto& item : make_fixed(run.dtype)->named_parameters()) {
    values[item.key()] = item.value().detach().to(at::kDouble);
  }
  for (int step = 0; step < run.steps; ++step) {
    const auto gradients = mean_gradients(step, run.ranks);
    const double factor = run.clip > 0 ? clip_factor(gradients, run.clip) : 1;
    for (auto& [name, value] : values) {
      value = step_of(name, value, gradients.at(name).to(at::kDouble) * factor, step + 1);
    }
  }
  return values;
}

void expect_same_bits(const Values& actual, const Values& expected, const std::string& what) {
  for (const auto& [name, value] : expected) {
    EXPECT_TRUE(at::equal(actual.at(name), value)) << what << ", " << name;
  }
}

void expect_close(const Values& actual, const Values& expected, const std::string& what,
                  double tolerance) {
  for (const auto& [name, value] : expected) {
    const auto found = actual.at(name).to(at::kDouble);
    const auto error = (found - value).abs() - value.abs() * tolerance;
    EXPECT_LT(error.max().item<double>(), tolerance) << what << ", " << name;
  }
}

}  // namespace fullshard::testing
