// SPDX-License-Identifier: Apache-2.0
// The gradients that the module's own parameters show. Theirs live in the shards, so after a
// backward any use of parameter.grad() throws.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace fullshard::engine {

class ModuleGradients {
 public:
  ModuleGradients() = default;
  explicit ModuleGradients(std::vector<at::Tensor> parameters);  // trainable ones

  void clear();
  void poison();

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> poisons_;
};

}  // namespace fullshard::engine
