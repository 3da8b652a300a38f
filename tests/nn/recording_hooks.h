// SPDX-License-Identifier: Apache-2.0
// Hooks that write down what happens to a unit.
#pragma once

#include <string>
#include <vector>

#include "fullshard/nn/forward_hooks.h"

namespace fullshard::nn {

class RecordingHooks : public ForwardHooks {
 public:
  explicit RecordingHooks(std::string name = "", std::vector<std::string>* log = nullptr)
      : name_(name.empty() ? name : name + " "), log_(log == nullptr ? &events : log) {}

  void before_forward(const std::vector<at::Tensor>& tensors) override {
    inputs = tensors;
    log_->push_back(name_ + "before");
  }
  void after_forward(const std::vector<at::Tensor>& /*inputs*/,
                     const std::vector<at::Tensor>& tensors) override {
    outputs = tensors;
    log_->push_back(name_ + "after");
  }
  void forward_failed() noexcept override { log_->push_back(name_ + "failed"); }
  void enter_recompute(RecomputePass pass, uint64_t id) override {
    ids.push_back(id);
    log_->push_back(name_ + (pass == RecomputePass::record ? "enter record" : "enter replay"));
  }
  void leave_recompute() noexcept override { log_->push_back(name_ + "leave"); }

  std::vector<std::string> events;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  std::vector<uint64_t> ids;

 private:
  std::string name_;
  std::vector<std::string>* log_;
};

using Events = std::vector<std::string>;

}  // namespace fullshard::nn
