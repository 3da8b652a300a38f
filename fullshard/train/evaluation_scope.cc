// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/evaluation_scope.h"

#include <ATen/autocast_mode.h>

#include "fullshard/base/error.h"

namespace fullshard {
namespace {

namespace autocast = at::autocast;

void check_dtype(std::optional<at::ScalarType> dtype) {
  check(!dtype || *dtype == at::kBFloat16 || *dtype == at::kHalf,
        "evaluation: dtype is {}, expected BFloat16 or Half, or none for the model's own",
        c10::toString(dtype.value_or(at::kFloat)));
}

void compute_in(at::ScalarType dtype) {
  for (const auto device : {at::kCPU, at::kCUDA}) {
    autocast::set_autocast_enabled(device, true);
    autocast::set_autocast_dtype(device, dtype);
  }
  // It would keep a cast of every gathered parameter, and so the whole model.
  autocast::set_autocast_cache_enabled(false);
}

}  // namespace

EvaluationScope::EvaluationScope(torch::nn::Module& module, std::optional<at::ScalarType> dtype)
    : autocast_((check_dtype(dtype), nn::AutocastState::now({at::kCPU, at::kCUDA}))) {
  was_training_.emplace_back(&module, module.is_training());
  for (const auto& below : module.modules(/*include_self=*/false)) {
    was_training_.emplace_back(below.get(), below->is_training());
  }
  module.eval();
  if (dtype) compute_in(*dtype);
}

EvaluationScope::~EvaluationScope() {
  autocast_.restore();
  // train() reaches what is below: a module that differs from its parent is set after it.
  for (const auto& [module, was_training] : was_training_) module->train(was_training);
}

}  // namespace fullshard
