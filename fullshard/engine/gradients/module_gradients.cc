// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/gradients/module_gradients.h"

#include <utility>

#include "fullshard/tensor/storage.h"

namespace fullshard::engine {
namespace {

constexpr const char* kPoison =
    "the gradients of a sharded model live in its shards, not in the module's parameters: step "
    "with fullshard::AdamW(sharded, …) or another optimizer over sharded.pieces(), and clip with "
    "sharded.clip_grad_norm(…)";

}  // namespace

ModuleGradients::ModuleGradients(std::vector<at::Tensor> parameters)
    : parameters_(std::move(parameters)) {
  for (const auto& parameter : parameters_) {
    poisons_.push_back(tensor::throwing_tensor(parameter.sizes(), parameter.scalar_type(), kPoison,
                                               parameter.device()));
  }
}

void ModuleGradients::clear() {
  for (auto& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
}

void ModuleGradients::poison() {
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = poisons_[i];
}

}  // namespace fullshard::engine
