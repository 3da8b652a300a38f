// SPDX-License-Identifier: Apache-2.0
// A module tree as data, in the order of registration.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace fullshard::nn {

struct NamedTensor {
  std::string name;  // within its module, without a path
  at::Tensor tensor;
};

// One module and what is below it. Pointers are borrowed: the tree must not outlive the module.
struct ModuleNode {
  std::string path;  // dotted, empty for the root
  std::string class_name;
  torch::nn::Module* module = nullptr;
  std::vector<NamedTensor> parameters;  // own ones only, defined ones only
  std::vector<NamedTensor> buffers;
  std::vector<ModuleNode> children;
};

// A module that is registered at two places stands at the first one only, together with what is
// below it. A tensor that two modules hold stands at both.
ModuleNode walk_modules(torch::nn::Module& root);

// Calls `visit` for a node and everything below it, parents first.
void for_each_node(const ModuleNode& root, const std::function<void(const ModuleNode&)>& visit);

// A number that is another one as soon as a parameter is registered, replaced or taken away in the
// tree while those that were there before still live. Nanoseconds per module.
uint64_t parameter_print(const torch::nn::Module& root);

// "layers.0" and "weight" give "layers.0.weight"; an empty path adds nothing.
std::string join_path(const std::string& path, const std::string& name);

}  // namespace fullshard::nn
