// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/adagrad.h"

#include "fullshard/optim/kernels/adagrad_kernels.h"
#include "fullshard/optim/kernels/setting_checks.h"

namespace fullshard {
namespace {

OptimizerTraits adagrad_traits(const AdagradOptions& options) {
  OptimizerTraits traits;
  traits.name = "Adagrad";
  optim::check_at_least_zero(traits.name, "lr_decay", options.lr_decay);
  optim::check_at_least_zero(traits.name, "initial_accumulator_value",
                             options.initial_accumulator_value);
  optim::check_at_least_zero(traits.name, "epsilon", options.epsilon);
  traits.state_names = {"sum"};
  traits.lr = options.lr;
  traits.weight_decay = options.weight_decay;
  traits.rules = options.rules;
  traits.state_dtype = options.state_dtype;
  traits.rounding_seed = options.rounding_seed;
  return traits;
}

}  // namespace

Adagrad::Adagrad(ShardedModel sharded, const AdagradOptions& options)
    : Optimizer(std::move(sharded), adagrad_traits(options)), options_(options) {
  if (options.initial_accumulator_value == 0) return;
  for_each(model().pieces(Masters::as_kept), 1, [&](const PieceUpdate& piece) {
    piece.states[0].fill_(options.initial_accumulator_value);
  });
}

optim::AdagradStep Adagrad::constants_of(double factor, double lr, double weight_decay) const {
  optim::AdagradStep constants;
  constants.clip = factor;
  constants.lr = lr / (1 + static_cast<double>(num_steps() - 1) * options_.lr_decay);
  constants.weight_decay = weight_decay;
  constants.epsilon = options_.epsilon;
  return constants;
}

void Adagrad::update(const PieceUpdate& update) {
  optim::adagrad_step(constants_of(update.factor, update.lr, update.weight_decay),
                      update.elements());
}

std::function<void(double)> Adagrad::deferred_update(const PieceUpdate& update) {
  return [constants = constants_of(1, update.lr, update.weight_decay),
          elements = update.elements()](double factor) mutable {
    constants.clip = factor;
    optim::adagrad_step(constants, elements);
  };
}

void Adagrad::update_on_device(const optim::DevicePass& pass) {
  std::vector<optim::AdagradStep> steps;
  for (const auto& setting : pass.settings) {
    steps.push_back(constants_of(pass.factor, setting.lr, setting.weight_decay));
  }
  optim::step_on_device(pass, steps);
}

}  // namespace fullshard
