// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/registered_parameters.h"

#include <unordered_set>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/engine/plan/ignored_modules.h"
#include "fullshard/nn/module_walk.h"

namespace fullshard::engine {
namespace {

using Known = std::unordered_set<const c10::TensorImpl*>;

Known parameters_of(const WrapPlan& plan) {
  Known known;
  for (const auto& unit : plan.units) {
    for (const auto& each : unit.parameters) known.insert(each.tensor.unsafeGetTensorImpl());
  }
  for (const auto& each : plan.ignored_parameters) known.insert(each.tensor.unsafeGetTensorImpl());
  return known;
}

std::string first_unknown_below(const nn::ModuleNode& node, const Known& known,
                                const IgnoredModules& ignored) {
  if (ignored.has(node.path)) return {};
  for (const auto& each : node.parameters) {
    if (known.count(each.tensor.unsafeGetTensorImpl()) == 0) {
      return nn::join_path(node.path, each.name);
    }
  }
  for (const auto& child : node.children) {
    auto found = first_unknown_below(child, known, ignored);
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace

RegisteredParameters::RegisteredParameters(torch::nn::Module& root, const WrapPlan& plan,
                                           std::string ignored_modules)
    : root_(root),
      plan_(plan),
      ignored_modules_(std::move(ignored_modules)),
      print_(nn::parameter_print(root)) {}

void RegisteredParameters::check() const {
  const uint64_t print = nn::parameter_print(root_);
  if (print == print_) [[likely]]
    return;
  const std::string late = first_unknown();
  fullshard::check(late.empty(),
                   "parameter '{}' was registered after shard(), which does not know it: it is "
                   "neither trained nor saved; register it before shard()",
                   late);
  print_ = print;  // some are gone, or an ignored module has more
}

std::string RegisteredParameters::first_unknown() const {
  return first_unknown_below(nn::walk_modules(root_), parameters_of(plan_),
                             IgnoredModules(ignored_modules_));
}

}  // namespace fullshard::engine
