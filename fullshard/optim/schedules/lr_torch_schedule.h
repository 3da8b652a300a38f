// SPDX-License-Identifier: Apache-2.0
// A torch::optim::LRScheduler as a schedule, so that it can drive our optimizers:
//   make_torch_schedule([](auto& optimizer) {
//     return std::make_unique<torch::optim::StepLR>(optimizer, 30, 0.1);
//   });
#pragma once

#include <functional>
#include <memory>

#include "fullshard/optim/schedules/lr_schedule.h"

namespace torch::optim {
class LRScheduler;
class Optimizer;
}  // namespace torch::optim

namespace fullshard {

// `make` is called with a stand-in optimizer that has the rate of ours. The scheduler must depend
// on nothing but its count of steps: its rates are replayed, and kept, as steps ask for them.
std::unique_ptr<LrSchedule> make_torch_schedule(
    std::function<std::unique_ptr<torch::optim::LRScheduler>(torch::optim::Optimizer&)> make);

}  // namespace fullshard
