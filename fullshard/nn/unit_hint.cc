// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/unit_hint.h"

#include <c10/util/Type.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <typeinfo>

#include "fullshard/nn/class_name.h"

namespace fullshard::nn {
namespace {

constexpr std::string_view kTorch = "torch::nn::", kOwn = "fullshard::", kImplSuffix = "Impl";

// Their forward is a template, or there is none.
constexpr std::array<std::string_view, 6> kContainers = {
    "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "Module"};

// "torch::nn::Linear" for a torch::nn::LinearImpl; empty: not a class of torch's or of ours.
std::string library_holder(const std::string& type) {
  for (const std::string_view space : {kTorch, kOwn}) {
    if (!type.starts_with(space) || !type.ends_with(kImplSuffix)) continue;
    const auto name = type.substr(space.size(), type.size() - space.size() - kImplSuffix.size());
    const bool is_plain =
        std::all_of(name.begin(), name.end(), [](char letter) { return std::isalnum(letter); });
    if (is_plain) return std::string(space) + name;
  }
  return {};
}

}  // namespace

std::string how_to_make_unit(const torch::nn::Module& module) {
  const auto name = class_name_of(module);
  const auto type = c10::demangle(typeid(module).name());
  const bool is_torchs = type.starts_with(kTorch);
  if (is_torchs && std::find(kContainers.begin(), kContainers.end(), name) != kContainers.end()) {
    return fmt::format(
        "a {} has no forward to surround: hold its modules in a class of your own that derives "
        "from fullshard::Unit, with FULLSHARD_UNIT in place of TORCH_MODULE",
        name);
  }
  const auto holder = library_holder(type);
  if (!holder.empty()) return fmt::format("hold it as fullshard::Wrap<{}>", holder);
  return fmt::format(
      "derive it from fullshard::Unit and write FULLSHARD_UNIT({}) in place of TORCH_MODULE({}), "
      "or, "
      "where you cannot edit it, hold it as fullshard::Wrap<{}>",
      name, name, name);
}

std::string how_to_run_hooks(const torch::nn::Module& module) {
  const auto name = class_name_of(module);
  return fmt::format(
      "write FULLSHARD_UNIT({}) in place of TORCH_MODULE({}), and make it as {}(…), not with "
      "make_shared<{}Impl>",
      name, name, name, name);
}

}  // namespace fullshard::nn
