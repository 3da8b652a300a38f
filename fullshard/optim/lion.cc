#include "fullshard/optim/lion.h"

#include "fullshard/optim/lion_kernels.h"
#include "fullshard/optim/setting_checks.h"

namespace fullshard {
namespace {

OptimizerTraits traits_of(const LionOptions& options) {
  OptimizerTraits traits;
  traits.name = "Lion";
  check_below_one(traits.name, "beta1", options.beta1);
  check_below_one(traits.name, "beta2", options.beta2);
  traits.state_names = {"exp_avg"};
  traits.lr = options.lr;
  traits.weight_decay = options.weight_decay;
  traits.momentum = options.beta1;
  traits.beta2 = options.beta2;
  traits.rules = options.rules;
  traits.state_dtype = options.state_dtype;
  traits.rounding_seed = options.rounding_seed;
  return traits;
}

}  // namespace

Lion::Lion(ShardedModel model, const LionOptions& options)
    : Optimizer(std::move(model), traits_of(options)) {}

void Lion::update(const PieceUpdate& update) {
  LionStep constants;
  constants.clip = update.factor;
  constants.beta1 = momentum();
  constants.beta2 = beta2();
  constants.decay = 1 - update.lr * update.weight_decay;
  constants.lr = update.lr;
  lion_step(constants, update.elements());
}

}  // namespace fullshard
