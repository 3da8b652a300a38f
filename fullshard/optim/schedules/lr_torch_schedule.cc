// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/schedules/lr_torch_schedule.h"

#include <ATen/ops/empty.h>
#include <torch/optim/schedulers/lr_scheduler.h>
#include <torch/optim/sgd.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "fullshard/base/error.h"

namespace fullshard {

namespace {

using Make = std::function<std::unique_ptr<torch::optim::LRScheduler>(torch::optim::Optimizer&)>;

// One scheduler with the optimizer it holds a reference to, and the rates it gave so far.
class Replay {
 public:
  Replay(const Make& make, double lr)
      : optimizer_(std::vector<at::Tensor>{at::empty({0})}, torch::optim::SGDOptions(lr)),
        scheduler_(make(optimizer_)) {
    check(scheduler_ != nullptr, "torch schedule: the function made no scheduler, expected one");
    lrs_.push_back(present());
  }

  double at(int64_t step) {
    while (std::cmp_less_equal(lrs_.size(), step)) {
      scheduler_->step();
      lrs_.push_back(present());
    }
    return lrs_[step];
  }

 private:
  double present() const { return optimizer_.param_groups().front().options().get_lr(); }

  torch::optim::SGD optimizer_;
  std::unique_ptr<torch::optim::LRScheduler> scheduler_;
  std::vector<double> lrs_;  // by step
};

class TorchSchedule : public LrSchedule {
 public:
  explicit TorchSchedule(Make make) : LrSchedule("torch"), make_(std::move(make)) {}

 private:
  Rates rates(int64_t step, double optimizer_lr) const override {
    const std::lock_guard lock(mutex_);
    auto found = replays_.find(optimizer_lr);
    if (found == replays_.end()) {
      found = replays_.emplace(optimizer_lr, std::make_unique<Replay>(make_, optimizer_lr)).first;
    }
    return {.lr = found->second->at(step)};
  }

  Make make_;
  mutable std::mutex mutex_;
  mutable std::map<double, std::unique_ptr<Replay>> replays_;  // by the optimizer's rate
};

}  // namespace

std::unique_ptr<LrSchedule> make_torch_schedule(Make make) {
  check(make != nullptr,
        "torch schedule: the function is empty, expected one that makes a scheduler");
  return std::make_unique<TorchSchedule>(std::move(make));
}

}  // namespace fullshard
