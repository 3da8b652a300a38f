// SPDX-License-Identifier: Apache-2.0
#include "tests/optim/naive_optimizers.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <regex>

namespace fullshard::testing {
namespace {

// Two states for each parameter, zero at first.
struct NaiveStates {
  std::map<std::string, std::pair<at::Tensor, at::Tensor>> of;

  std::pair<at::Tensor, at::Tensor>& at(const std::string& name, const at::Tensor& like) {
    if (!of.contains(name)) of[name] = {at::zeros_like(like), at::zeros_like(like)};
    return of[name];
  }
};

double decay_of(const OneBitAdamOptions& options, const std::string& name) {
  for (const auto& rule : options.rules) {
    if (std::regex_search(name, std::regex(rule.pattern))) {
      return rule.weight_decay.value_or(options.weight_decay);
    }
  }
  return options.weight_decay;
}

}  // namespace

NaiveStep naive_adam(const OptionsOf<AdamWOptions>& options_of) {
  auto states = std::make_shared<NaiveStates>();
  return [=](const std::string& name, const at::Tensor& p, at::Tensor g, int step) {
    const auto o = options_of(step);
    auto& [m, v] = states->at(name, p);
    if (!o.adam_w_mode) g = g + p * o.weight_decay;
    m = m * o.beta1 + g * (1 - o.beta1);
    v = v * o.beta2 + g * g * (1 - o.beta2);
    const double c1 = o.bias_correction ? 1 - std::pow(o.beta1, step) : 1;
    const double c2 = o.bias_correction ? 1 - std::pow(o.beta2, step) : 1;
    const auto decayed = o.adam_w_mode ? p * (1 - o.lr * o.weight_decay) : p;
    return decayed - o.lr * (m / c1) / ((v / c2).sqrt() + o.epsilon);
  };
}

NaiveStep naive_sgd(const OptionsOf<SgdOptions>& options_of) {
  auto states = std::make_shared<NaiveStates>();
  return [=](const std::string& name, const at::Tensor& p, at::Tensor g, int step) {
    const auto o = options_of(step);
    auto& buffer = states->at(name, p).first;
    g = g + p * o.weight_decay;
    buffer = step == 1 ? g : buffer * o.momentum + g * (1 - o.dampening);
    return p - o.lr * (o.nesterov ? g + buffer * o.momentum : buffer);
  };
}

NaiveStep naive_adagrad(const OptionsOf<AdagradOptions>& options_of) {
  auto states = std::make_shared<NaiveStates>();
  return [=](const std::string& name, const at::Tensor& p, at::Tensor g, int step) {
    const auto o = options_of(step);
    auto& sum = states->at(name, p).first;
    g = g + p * o.weight_decay;
    sum = sum + g * g;
    return p - o.lr / (1 + (step - 1) * o.lr_decay) * g / (sum.sqrt() + o.epsilon);
  };
}

NaiveStep naive_lion(const OptionsOf<LionOptions>& options_of) {
  auto states = std::make_shared<NaiveStates>();
  return [=](const std::string& name, const at::Tensor& p, const at::Tensor& g, int step) {
    const auto o = options_of(step);
    auto& m = states->at(name, p).first;
    const auto direction = (m * o.beta1 + g * (1 - o.beta1)).sign();
    m = m * o.beta2 + g * (1 - o.beta2);
    return p * (1 - o.lr * o.weight_decay) - o.lr * direction;
  };
}

NaiveStep naive_lamb(const OptionsOf<LambOptions>& options_of) {
  auto states = std::make_shared<NaiveStates>();
  return [=](const std::string& name, const at::Tensor& p, const at::Tensor& g, int step) {
    const auto o = options_of(step);
    auto& [m, v] = states->at(name, p);
    m = m * o.beta1 + g * (1 - o.beta1);
    v = v * o.beta2 + g * g * (1 - o.beta2);
    const auto root = o.eps_inside_sqrt ? (v + o.epsilon).sqrt() : v.sqrt() + o.epsilon;
    const auto direction = m / root + p * o.weight_decay;
    const double ratio =
        std::clamp((p.norm() / direction.norm()).item<double>(), o.min_coeff, o.max_coeff);
    const double correction =
        o.bias_correction ? std::sqrt(1 - std::pow(o.beta2, step)) / (1 - std::pow(o.beta1, step))
                          : 1;
    return p - o.lr * correction * ratio * direction;
  };
}

NaiveStep naive_one_bit_adam(const OptionsOf<OneBitAdamOptions>& options_of) {
  auto states = std::make_shared<NaiveStates>();
  return [=](const std::string& name, const at::Tensor& p, const at::Tensor& g, int step) {
    if (step == 1) return p;  // dropped, as DeepSpeed does
    const auto o = options_of(step);
    auto& [m, v] = states->at(name, p);
    m = m * o.beta1 + g * (1 - o.beta1);
    if (step <= o.freeze_step) v = v * o.beta2 + g * g * (1 - o.beta2);
    return p - o.lr * (m / (v.sqrt() + o.epsilon) + p * decay_of(o, name));
  };
}

}  // namespace fullshard::testing
