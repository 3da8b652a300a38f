// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/module_walk.h"

#include <torch/nn/module.h>

#include <unordered_set>
#include <utility>

#include "fullshard/nn/class_name.h"

namespace fullshard::nn {
namespace {

using Seen = std::unordered_set<const torch::nn::Module*>;

template <class Dictionary>
std::vector<NamedTensor> named_tensors(const Dictionary& dictionary) {
  std::vector<NamedTensor> tensors;
  tensors.reserve(dictionary.size());
  for (const auto& item : dictionary) {
    if (item.value().defined()) tensors.push_back({item.key(), item.value()});
  }
  return tensors;
}

ModuleNode walk(torch::nn::Module& module, std::string path, Seen& seen) {
  ModuleNode node;
  node.class_name = class_name_of(module);
  node.module = &module;
  node.parameters = named_tensors(module.named_parameters(/*recurse=*/false));
  node.buffers = named_tensors(module.named_buffers(/*recurse=*/false));
  for (const auto& child : module.named_children()) {
    if (!child.value() || !seen.insert(child.value().get()).second) continue;
    node.children.push_back(walk(*child.value(), join_path(path, child.key()), seen));
  }
  node.path = std::move(path);
  return node;
}

// The public calls copy names and pointers; an explicit instantiation may name private members.
using Parameters = torch::OrderedDict<std::string, at::Tensor>;
using Children = torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>;

template <Parameters torch::nn::Module::*Own, Children torch::nn::Module::*Below>
struct ModuleMembers {
  friend const Parameters& own_parameters(const torch::nn::Module& module) { return module.*Own; }
  friend const Children& own_children(const torch::nn::Module& module) { return module.*Below; }
};
const Parameters& own_parameters(const torch::nn::Module& module);
const Children& own_children(const torch::nn::Module& module);
template struct ModuleMembers<&torch::nn::Module::parameters_, &torch::nn::Module::children_>;

void add_to_print(const torch::nn::Module& module, uint64_t& print) {
  for (const auto& item : own_parameters(module)) {
    const auto place = reinterpret_cast<uintptr_t>(item.value().unsafeGetTensorImpl());
    print = (print ^ place) * 0x9E3779B97F4A7C15;
  }
  for (const auto& child : own_children(module)) {
    if (child.value()) add_to_print(*child.value(), print);
  }
}

}  // namespace

uint64_t parameter_print(const torch::nn::Module& root) {
  uint64_t print = 0;
  add_to_print(root, print);
  return print;
}

std::string join_path(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

ModuleNode walk_modules(torch::nn::Module& root) {
  Seen seen{&root};
  return walk(root, "", seen);
}

void for_each_node(const ModuleNode& root, const std::function<void(const ModuleNode&)>& visit) {
  visit(root);
  for (const ModuleNode& child : root.children) for_each_node(child, visit);
}

}  // namespace fullshard::nn
