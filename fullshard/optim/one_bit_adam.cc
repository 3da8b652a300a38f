// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/one_bit_adam.h"

#include <algorithm>

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
  for (const auto* group : engine.trainable_groups()) {
    if (!group->device().is_cuda()) continue;
    fail_as(ErrorKind::usage,
            "OneBitAdam: the model is on {}, but the one-bit exchange works in the memory of the "
            "CPU only; use AdamW, or keep the model on the CPU",
            group->device().str());
  }
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

std::vector<optim::OneBitExchange::Tensor> tensors_of(const ShardedModel& model) {
  std::vector<optim::OneBitExchange::Tensor> tensors;
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
  exchange_.emplace(ranks, engine::EngineAccess::of(model()).pool(), tensors_of(model()));
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
  if (!exchange_ || num_steps() <= last_warm_up_) return;
  std::vector<optim::OneBitExchange::Values> values;
  for_each(model().pieces(), 1, [&](const PieceUpdate& update) {
    const auto elements = update.elements();
    values.push_back({elements.states[0], elements.gradient});
  });
  exchange_->average({.clip = model().gradient_factor(), .beta1 = momentum()}, values);
}

void OneBitAdam::update(const PieceUpdate& update) {
  if (num_steps() <= kIdleSteps) return;
  if (num_steps() <= last_warm_up_) {
    update_with_variance(update);
  } else {
    update_frozen(update);
  }
  // From the next backward on; here and not before the updates, which may be refused.
  model().set_gradient_reduction(!is_frozen());
}

void OneBitAdam::update_with_variance(const PieceUpdate& update) {
  optim::AdamWStep constants;
  constants.clip = update.factor;
  constants.beta1 = momentum();
  constants.beta2 = beta2();
  constants.step_size = update.lr;
  constants.epsilon = options_.epsilon;
  constants.decay = 1 - update.lr * update.weight_decay;
  optim::adamw_step(constants, update.elements());
}

// The momentum is the mean of the ranks' already, except where there is one rank.
void OneBitAdam::update_frozen(const PieceUpdate& update) {
  const auto elements = update.elements();
  if (!exchange_) optim::momentum_step({.clip = update.factor, .beta1 = momentum()}, elements);
  optim::LambStep constants;  // LAMB's second pass is the same expression
  constants.epsilon = options_.epsilon;
  constants.weight_decay = update.weight_decay;
  constants.step_size = update.lr;
  optim::lamb_step(constants, elements);
}

}  // namespace fullshard
