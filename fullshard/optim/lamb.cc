// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/lamb.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "fullshard/optim/kernels/lamb_kernels.h"
#include "fullshard/optim/kernels/setting_checks.h"

namespace fullshard {
namespace {

OptimizerTraits lamb_traits(const LambOptions& options) {
  OptimizerTraits traits;
  traits.name = "LAMB";
  optim::check_below_one(traits.name, "beta1", options.beta1);
  optim::check_below_one(traits.name, "beta2", options.beta2);
  optim::check_at_least_zero(traits.name, "epsilon", options.epsilon);
  optim::check_at_least_zero(traits.name, "min_coeff", options.min_coeff);
  check(options.max_coeff >= options.min_coeff,
        "LAMB: max_coeff is {}, expected at least min_coeff, {}", options.max_coeff,
        options.min_coeff);
  traits.state_names = {"exp_avg", "exp_avg_sq"};
  traits.lr = options.lr;
  traits.weight_decay = options.weight_decay;
  traits.momentum = options.beta1;
  traits.beta2 = options.beta2;
  traits.rules = options.rules;
  traits.state_dtype = options.state_dtype;
  traits.rounding_seed = options.rounding_seed;
  traits.needs_all_states =
      "it takes a norm over whole tensors between two passes over the moments";
  return traits;
}

}  // namespace

Lamb::Lamb(ShardedModel sharded, const LambOptions& options)
    : Optimizer(std::move(sharded), lamb_traits(options)),
      options_(options),
      trust_ratios_(parameters().size(), 1.0f) {}

optim::LambStep Lamb::constants_of(double factor, double weight_decay) const {
  optim::LambStep constants;
  constants.clip = factor;
  constants.beta1 = momentum();
  constants.beta2 = beta2();
  constants.epsilon = options_.epsilon;
  constants.epsilon_inside_root = options_.eps_inside_sqrt;
  constants.weight_decay = weight_decay;
  return constants;
}

void Lamb::before_updates() {
  const int64_t num_tensors = parameters().size();
  const auto pieces = model().pieces(Masters::as_kept);
  // By the model's device: moments may rest in host memory that it can use.
  const auto device = model().mesh().world().device();
  if (num_tensors > 0 && device.is_cuda()) return take_moments_on_device(pieces, device);
  auto own = at::zeros({num_tensors, 2}, at::kDouble);
  auto sums = own.accessor<double, 2>();
  for_each(pieces, model().gradient_factor(), [&](const PieceUpdate& update) {
    if (!update.piece.gradient.defined()) return;
    const auto squares =
        optim::lamb_moments(constants_of(update.factor, update.weight_decay), update.elements());
    sums[update.parameter.index][0] = squares.parameter;
    sums[update.parameter.index][1] = squares.direction;
  });
  auto shards = model().mesh().shards();
  auto all = at::zeros({shards.size(), num_tensors, 2}, at::kDouble);
  if (num_tensors > 0) shards.all_gather(all.view({-1}), own.view({-1}), "LAMB's norms").wait();
  const auto partials = all.accessor<double, 3>();
  for (int64_t tensor = 0; tensor < num_tensors; ++tensor) {
    double parameter = 0, direction = 0;
    for (int64_t shard = 0; shard < shards.size(); ++shard) {
      parameter += partials[shard][tensor][0];
      direction += partials[shard][tensor][1];
    }
    trust_ratios_[tensor] = trust_ratio(parameter, direction);
  }
}

float Lamb::trust_ratio(double parameter_squares, double direction_squares) const {
  const auto parameter = static_cast<float>(std::sqrt(parameter_squares));
  const auto direction = static_cast<float>(std::sqrt(direction_squares));
  if (parameter == 0 || direction == 0) return 1;
  return std::clamp(parameter / direction, static_cast<float>(options_.min_coeff),
                    static_cast<float>(options_.max_coeff));
}

double Lamb::step_size_of(double lr) const {
  if (!options_.bias_correction) return lr;
  const auto step = static_cast<double>(num_steps());
  return lr * (std::sqrt(1 - std::pow(beta2(), step)) / (1 - std::pow(momentum(), step)));
}

void Lamb::update(const PieceUpdate& update) {
  auto constants = constants_of(update.factor, update.weight_decay);
  constants.step_size = step_size_of(update.lr) * trust_ratios_[update.parameter.index];
  optim::lamb_step(constants, update.elements());
}

void Lamb::take_moments_on_device(const std::vector<PieceView>& pieces, at::Device device) {
  const int64_t num_tensors = parameters().size();
  const auto pass = device_pass(pieces, model().gradient_factor(), device);
  std::vector<optim::LambStep> steps;
  for (const auto& setting : pass.settings) {
    steps.push_back(constants_of(pass.factor, setting.weight_decay));
  }
  auto squares = optim::moments_on_device(pass, steps, num_tensors);
  auto shards = model().mesh().shards();
  if (shards.size() > 1) {
    auto all = at::zeros({shards.size() * num_tensors * 2}, squares.options());
    shards.all_gather(all, squares.view({-1}), "LAMB's norms").wait();
    squares = all;
  }
  ratios_on_device_ = optim::trust_ratios_on_device(squares.view({shards.size(), num_tensors, 2}),
                                                    static_cast<float>(options_.min_coeff),
                                                    static_cast<float>(options_.max_coeff));
}

void Lamb::update_on_device(const optim::DevicePass& pass) {
  std::vector<optim::LambStep> steps;
  for (const auto& setting : pass.settings) {
    auto constants = constants_of(pass.factor, setting.weight_decay);
    constants.step_size = step_size_of(setting.lr);
    steps.push_back(constants);
  }
  optim::step_on_device(pass, steps, ratios_on_device_);
}

std::vector<float> Lamb::trust_ratios() const {
  if (!ratios_on_device_.defined()) return trust_ratios_;
  const auto ratios = ratios_on_device_.to(at::kCPU);
  return {ratios.const_data_ptr<float>(), ratios.const_data_ptr<float>() + ratios.numel()};
}

}  // namespace fullshard
