// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/lr_target.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>

#include <tuple>

#include "fullshard/optim/optimizer.h"

namespace fullshard {

namespace {

class OwnTarget : public RateTarget {
 public:
  explicit OwnTarget(Optimizer& optimizer) : optimizer_(optimizer) {}

  double lr(int) const override { return optimizer_.lr(); }
  void set_lr(int, double lr) override { optimizer_.set_scheduled_lr(lr); }
  bool keeps_base_lr() const override { return true; }
  double base_lr(int) const override { return optimizer_.base_lr(); }

  // SGD has a momentum, but no betas.
  bool takes_momentum() const override {
    return optimizer_.has_momentum() && optimizer_.has_beta2();
  }
  void set_momentum(double momentum, std::optional<double> beta2) override {
    optimizer_.set_momentum(momentum);
    if (beta2) optimizer_.set_beta2(*beta2);
  }

 private:
  Optimizer& optimizer_;
};

class TorchTarget : public RateTarget {
 public:
  explicit TorchTarget(torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {}

  int num_groups() const override { return static_cast<int>(optimizer_.param_groups().size()); }
  double lr(int group) const override { return options(group).get_lr(); }
  void set_lr(int group, double lr) override { options(group).set_lr(lr); }

  bool takes_momentum() const override {
    return visit_betas([](auto&) {});
  }
  void set_momentum(double momentum, std::optional<double> beta2) override {
    visit_betas([&](auto& betas) {
      betas = std::make_tuple(momentum, beta2.value_or(std::get<1>(betas)));
    });
  }

 private:
  torch::optim::OptimizerOptions& options(int group) const {
    return optimizer_.param_groups()[group].options();
  }

  // torch::optim has no common way to reach betas. False when a group has none.
  template <class Visit>
  bool visit_betas(const Visit& visit) const {
    for (int group = 0; group < num_groups(); ++group) {
      if (auto* adam = dynamic_cast<torch::optim::AdamOptions*>(&options(group))) {
        visit(adam->betas());
      } else if (auto* adamw = dynamic_cast<torch::optim::AdamWOptions*>(&options(group))) {
        visit(adamw->betas());
      } else {
        return false;
      }
    }
    return true;
  }

  torch::optim::Optimizer& optimizer_;
};

}  // namespace

std::unique_ptr<RateTarget> make_rate_target(Optimizer& optimizer) {
  return std::make_unique<OwnTarget>(optimizer);
}

std::unique_ptr<RateTarget> make_rate_target(torch::optim::Optimizer& optimizer) {
  return std::make_unique<TorchTarget>(optimizer);
}

}  // namespace fullshard
