#include "fullshard/optim/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include <cmath>

#include "fullshard/base/error.h"
#include "fullshard/optim/setting_checks.h"
#include "fullshard/shard/engine.h"
#include "fullshard/shard/grad_norm.h"

namespace fullshard {
namespace {

void check_traits(const OptimizerTraits& traits) {
  check_at_least_zero(traits.name, "lr", traits.lr);
  check_at_least_zero(traits.name, "weight_decay", traits.weight_decay);
  check(traits.state_dtype == at::kFloat || traits.state_dtype == at::kBFloat16,
        "{}: state_dtype is {}, expected Float or BFloat16", traits.name,
        c10::toString(traits.state_dtype));
}

at::ScalarType state_dtype(const ShardedModel& model, int group, const OptimizerTraits& traits) {
  const auto master = model.engine().trainable_groups().at(group)->spec().master_dtype;
  return master == at::kDouble ? at::kDouble : traits.state_dtype;
}

Elements elements_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.data_ptr(), tensor.scalar_type()};
}

}  // namespace

PieceElements PieceUpdate::elements() const {
  PieceElements elements;
  elements.master = elements_of(piece.master);
  elements.gradient = elements_of(piece.gradient);
  elements.shown = elements_of(piece.shown);
  for (size_t i = 0; i < states.size(); ++i) elements.states.at(i) = elements_of(states[i]);
  elements.numel = piece.numel();
  elements.first = piece.begin;
  elements.rounding = rounding;
  return elements;
}

Optimizer::Optimizer(ShardedModel model, OptimizerTraits traits)
    : model_((check_traits(traits), std::move(model))),
      traits_(std::move(traits)),
      parameters_(traits_.name, model_, traits_.rules),
      states_(model_.num_groups()) {
  for (int group = 0; group < model_.num_groups(); ++group) {
    for (size_t i = 0; i < traits_.state_names.size(); ++i) {
      states_[group].push_back(model_.make_state(group, state_dtype(model_, group, traits_)));
    }
  }
}

void Optimizer::set_lr(double lr) {
  check_at_least_zero(name(), "lr", lr);
  traits_.lr = lr;
}

void Optimizer::set_momentum(double momentum) {
  check(has_momentum(), "{}: momentum cannot be set to {}: it was made without one", name(),
        momentum);
  check_below_one(name(), "momentum", momentum);
  traits_.momentum = momentum;
}

void Optimizer::set_beta2(double beta2) {
  check(has_beta2(), "{}: beta2 cannot be set to {}: there is none", name(), beta2);
  check_below_one(name(), "beta2", beta2);
  traits_.beta2 = beta2;
}

void Optimizer::restore_num_steps(int64_t num_steps) {
  check(num_steps >= 0, "{}: num_steps is {}, expected at least 0", name(), num_steps);
  num_steps_ = num_steps;
}

void Optimizer::update_on_device(const DevicePass&) {
  fail_as(ErrorKind::usage,
          "{}: it has no step on CUDA; keep the model on the CPU or use another optimizer", name());
}

at::Tensor Optimizer::clip_without_waiting(double max_norm, ShardedModel::Norm norm) {
  check(max_norm >= 0 && std::isfinite(max_norm),
        "clip_without_waiting: max_norm is {}, expected 0 (no clipping) or a positive number",
        max_norm);
  if (model_.mesh().world().device().is_cpu()) {
    const double total =
        max_norm > 0 ? model_.clip_grad_norm(max_norm, norm) : model_.grad_norm(norm);
    return at::full({}, total, at::kDouble);
  }
  model_.engine().check_gradients_kept();
  const auto kind =
      norm == ShardedModel::Norm::infinity ? NormKind::largest : NormKind::sum_of_squares;
  const auto outcome = clip_factor(model_.engine(), kind, max_norm, model_.loss_scale());
  factor_on_device_ = outcome.narrow(0, 1, 1);
  return outcome.select(0, 0);
}

ShardedModel::Shown Optimizer::shows() const {
  const bool is_on_device = model_.mesh().world().device().is_cuda();
  return is_on_device && traits_.state_dtype == at::kFloat ? ShardedModel::Shown::written_in_halves
                                                           : ShardedModel::Shown::written_by_update;
}

DevicePass Optimizer::device_pass(const std::vector<PieceView>& pieces, double factor,
                                  at::Device device) {
  DevicePass pass{.table = device_pieces_.table_of(pieces, states_, parameters_, device)};
  pass.factor = factor;
  pass.factor_on_device = factor_on_device_;
  pass.rounding = RoundingKey::of_step(traits_.rounding_seed, num_steps_);
  for (const auto& rules : device_pieces_.rules()) {
    pass.settings.push_back(
        {traits_.lr * rules.lr_scale, rules.weight_decay.value_or(traits_.weight_decay)});
  }
  return pass;
}

void Optimizer::step() {
  at::NoGradGuard no_grad;
  ++num_steps_;
  device_pieces_.start_step();
  const auto shown = shows();
  try {
    // Before anything looks at them.
    if (shown != ShardedModel::Shown::written_in_halves) model_.keep_masters_whole();
    before_updates();
    model_.update(
        [this](const std::vector<PieceView>& pieces, double factor) {
          const auto device = model_.mesh().world().device();
          if (device.is_cuda()) return update_on_device(device_pass(pieces, factor, device));
          for_each(pieces, factor, [this](const PieceUpdate& piece) { update(piece); });
        },
        shown);
    factor_on_device_ = at::Tensor();
  } catch (...) {
    --num_steps_;
    throw;
  }
}

}  // namespace fullshard
