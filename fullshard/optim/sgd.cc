#include "fullshard/optim/sgd.h"

#include "fullshard/optim/setting_checks.h"
#include "fullshard/optim/sgd_kernels.h"

namespace fullshard {
namespace {

OptimizerTraits traits_of(const SgdOptions& options) {
  OptimizerTraits traits;
  traits.name = "SGD";
  check_at_least_zero(traits.name, "momentum", options.momentum);
  check(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
        "SGD: nesterov needs momentum above 0 and dampening 0, found momentum {} and dampening {}",
        options.momentum, options.dampening);
  if (options.momentum != 0) {
    traits.state_names = {"momentum_buffer"};
    traits.momentum = options.momentum;
  }
  traits.lr = options.lr;
  traits.weight_decay = options.weight_decay;
  traits.rules = options.rules;
  traits.state_dtype = options.state_dtype;
  traits.rounding_seed = options.rounding_seed;
  return traits;
}

}  // namespace

Sgd::Sgd(ShardedModel model, const SgdOptions& options)
    : Optimizer(std::move(model), traits_of(options)), options_(options) {}

void Sgd::update(const PieceUpdate& update) {
  SgdStep constants;
  constants.clip = update.factor;
  constants.lr = update.lr;
  constants.weight_decay = update.weight_decay;
  constants.momentum = momentum();
  // torch's first step copies the gradient into the buffer: undamped.
  constants.from_gradient = num_steps() == 1 ? 1 : 1 - options_.dampening;
  constants.nesterov = options_.nesterov;
  sgd_step(constants, update.elements());
}

}  // namespace fullshard
