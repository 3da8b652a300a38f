// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/one_bit_adam.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "fullshard/engine/engine_access.h"
#include "fullshard/optim/kernels/adamw_kernels.h"
#include "fullshard/optim/kernels/lamb_kernels.h"
#include "fullshard/optim/kernels/setting_checks.h"

namespace fullshard {
namespace {

constexpr int64_t kIdleSteps = 1;

OptimizerTraits one_bit_adam_traits(const OneBitAdamOptions& options) {
  OptimizerTraits traits;
  traits.name = "OneBitAdam";
  optim::check_below_one(traits.name, "beta1", options.beta1);
  optim::check_below_one(traits.name, "beta2", options.beta2);
  optim::check_at_least_zero(traits.name, "epsilon", options.epsilon);
  check(options.freeze_step >= 0, "OneBitAdam: freeze_step is {}, expected at least 0",
        options.freeze_step);
  traits.state_names = {"exp_avg", "exp_avg_sq"};
  traits.lr = options.lr;
  traits.weight_decay = options.weight_decay;
  traits.momentum = options.beta1;
  traits.beta2 = options.beta2;
  traits.rules = options.rules;
  traits.state_dtype = options.state_dtype;
  traits.rounding_seed = options.rounding_seed;
  traits.needs_all_states = "it sends all of its momentum at once";
  return traits;
}

ShardedModel unsharded(ShardedModel model) {
  const auto& engine = engine::EngineAccess::of(model);
  const int num_shards = engine.decision().num_shards;
  if (num_shards > 1) {
    const auto& asked = engine.options().sharding;
    fail_as(ErrorKind::usage,
            "OneBitAdam: the model is sharded by {} over {} ranks, but every rank must hold all of "
            "it; use NO_SHARD or ZeRO stage 0, or another optimizer",
            asked.zero_stage ? fmt::format("ZeRO stage {}", *asked.zero_stage)
                             : std::string(name_of(asked.strategy)),
            num_shards);
  }
  return model;
}

std::vector<optim::OneBitTensor> tensors_of(const ShardedModel& model) {
  std::vector<optim::OneBitTensor> tensors;
  for (const auto& piece : model.pieces(Masters::as_kept)) {
    tensors.push_back({piece.name, piece.numel()});
  }
  return tensors;
}

}  // namespace

OneBitAdam::OneBitAdam(ShardedModel sharded, const OneBitAdamOptions& options)
    : Optimizer(unsharded(std::move(sharded)), one_bit_adam_traits(options)),
      options_(options),
      last_warm_up_(std::max(options.freeze_step, kIdleSteps + 1)) {
  const auto& ranks = model().mesh().everyone();
  if (ranks.size() == 1) return;
  const auto make = model().mesh().world().device().is_cuda() ? optim::make_device_exchange
                                                              : optim::make_host_exchange;
  exchange_ = make(ranks, engine::EngineAccess::of(model()).pool(), tensors_of(model()));
}

OneBitAdam::~OneBitAdam() { engine::EngineAccess::of(model()).set_over_ranks(true); }

bool OneBitAdam::is_frozen() const { return num_steps() >= last_warm_up_; }

void OneBitAdam::restore_num_steps(int64_t num_steps) {
  Optimizer::restore_num_steps(num_steps);
  model().set_gradient_reduction(!is_frozen());
}

std::vector<OneBitAdam::RankState> OneBitAdam::rank_states() const {
  if (!exchange_) return {};
  return {{"worker_error", exchange_->worker_error()}, {"server_error", exchange_->server_error()}};
}

void OneBitAdam::before_updates() {
  skips_step_ = false;
  const auto device = model().mesh().world().device();
  if (num_steps() <= last_warm_up_ || (!exchange_ && !device.is_cuda())) return;
  std::vector<optim::OneBitExchange::Values> values;
  for_each(model().pieces(), 1, [&](const PieceUpdate& update) {
    values.push_back({update.states[0], update.piece.gradient});
  });
  if (device.is_cuda()) return take_momenta(values, device);
  exchange_->average({.clip = model().gradient_factor(), .beta1 = momentum()}, values);
}

// A factor that is still on the device is waited for: what is not finite would stay in the errors.
void OneBitAdam::take_momenta(const std::vector<optim::OneBitExchange::Values>& values,
                              at::Device device) {
  const auto pass = device_pass(model().pieces(), model().gradient_factor(), device);
  const double factor =
      pass.factor_on_device.defined() ? pass.factor_on_device.item<double>() : pass.factor;
  const auto is_bad = at::zeros({1}, at::kLong);
  is_bad.fill_(std::isfinite(factor) ? 0 : 1);
  if (exchange_) {
    const auto& ranks = model().mesh().everyone();
    ranks.all_reduce(is_bad, ReduceOp::max, "OneBitAdam's gradients").wait();
  }
  skips_step_ = is_bad.item<int64_t>() != 0;
  if (skips_step_) return;
  if (exchange_) return exchange_->average({.clip = factor, .beta1 = momentum()}, values);
  for (const auto& [exp_avg, gradient] : values) {
    if (!gradient.defined()) continue;
    const auto added = gradient.to(at::kFloat).mul(factor * (1 - momentum()));
    exp_avg.copy_(exp_avg.to(added.device(), at::kFloat).mul(momentum()).add_(added));
  }
}

optim::AdamWStep OneBitAdam::variance_step(double factor, double lr, double weight_decay) const {
  optim::AdamWStep constants;
  constants.clip = factor;
  constants.beta1 = momentum();
  constants.beta2 = beta2();
  constants.step_size = lr;
  constants.epsilon = options_.epsilon;
  constants.decay = 1 - lr * weight_decay;
  return constants;
}

// LAMB's second pass is the same expression.
optim::LambStep OneBitAdam::frozen_step(double lr, double weight_decay) const {
  optim::LambStep constants;
  constants.epsilon = options_.epsilon;
  constants.weight_decay = weight_decay;
  constants.step_size = lr;
  return constants;
}

void OneBitAdam::update(const PieceUpdate& update) {
  if (num_steps() <= kIdleSteps) return;
  const auto elements = update.elements();
  if (num_steps() <= last_warm_up_) {
    optim::adamw_step(variance_step(update.factor, update.lr, update.weight_decay), elements);
  } else {
    // The momentum is the mean of the ranks' already, except where there is one rank.
    if (!exchange_) optim::momentum_step({.clip = update.factor, .beta1 = momentum()}, elements);
    optim::lamb_step(frozen_step(update.lr, update.weight_decay), elements);
  }
  // From the next backward on; here and not before the updates, which may be refused.
  model().set_gradient_reduction(!is_frozen());
}

void OneBitAdam::update_on_device(const optim::DevicePass& pass) {
  if (num_steps() <= kIdleSteps || skips_step_) return;
  if (num_steps() <= last_warm_up_) {
    std::vector<optim::AdamWStep> steps;
    for (const auto& setting : pass.settings) {
      steps.push_back(variance_step(pass.factor, setting.lr, setting.weight_decay));
    }
    optim::step_on_device(pass, steps);
  } else {
    std::vector<optim::LambStep> steps;
    for (const auto& setting : pass.settings) {
      steps.push_back(frozen_step(setting.lr, setting.weight_decay));
    }
    const auto device = model().mesh().world().device();
    const auto no_ratio = at::ones({static_cast<int64_t>(parameters().size())},
                                   at::TensorOptions().dtype(at::kFloat).device(device));
    optim::step_on_device(pass, steps, no_ratio);
  }
  model().set_gradient_reduction(!is_frozen());
}

}  // namespace fullshard
