// SPDX-License-Identifier: Apache-2.0
// What a schedule sets rates of: one of our optimizers, one of torch's, or a user's own.
#pragma once

#include <memory>
#include <optional>

namespace torch::optim {
class Optimizer;
}

namespace fullshard {

class Optimizer;

class RateTarget {
 public:
  virtual ~RateTarget() = default;

  // Parameter groups that have a rate each.
  virtual int num_groups() const { return 1; }
  virtual double lr(int group) const = 0;
  virtual void set_lr(int group, double lr) = 0;
  // What a schedule multiplies. A target that remembers it gives the same to every schedule, also
  // to one that is made when another has changed lr().
  virtual bool keeps_base_lr() const { return false; }
  virtual double base_lr(int group) const { return lr(group); }

  // Whether there are betas to schedule. DeepSpeed leaves optimizers without them alone, SGD's
  // momentum included.
  virtual bool takes_momentum() const { return false; }
  // Of all groups: beta1, and beta2 where the schedule has one.
  virtual void set_momentum(double /*momentum*/, std::optional<double> /*beta2*/) {}
};

// The optimizer must outlive the target.
std::unique_ptr<RateTarget> make_rate_target(Optimizer& optimizer);
std::unique_ptr<RateTarget> make_rate_target(torch::optim::Optimizer& optimizer);

}  // namespace fullshard
