// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/recompute_policy.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/nn/module_walk.h"
#include "fullshard/nn/unit_hint.h"
#include "fullshard/nn/unit_state.h"

namespace fullshard {

RecomputePolicy RecomputePolicy::none() { return {}; }

RecomputePolicy RecomputePolicy::all() {
  RecomputePolicy policy;
  policy.kind_ = Kind::all;
  return policy;
}

RecomputePolicy RecomputePolicy::classes(std::vector<std::string> names) {
  RecomputePolicy policy;
  policy.kind_ = Kind::classes;
  policy.names_ = std::move(names);
  return policy;
}

RecomputePolicy RecomputePolicy::predicate(Predicate predicate) {
  RecomputePolicy policy;
  policy.kind_ = Kind::predicate;
  policy.predicate_ = std::move(predicate);
  return policy;
}

std::string RecomputePolicy::text() const {
  switch (kind_) {
    case Kind::none:
      return "none";
    case Kind::all:
      return "all";
    case Kind::classes:
      return fmt::format("classes {}", fmt::join(names_, ", "));
    case Kind::predicate:
      return "predicate";
  }
  return {};
}

// Chooses first and switches then, so that an error leaves the model as it was.
class RecomputeSwitch {
 public:
  explicit RecomputeSwitch(const RecomputePolicy& policy) : policy_(policy) {}

  int turn_on(torch::nn::Module& model) {
    if (policy_.is_none()) return 0;
    const nn::ModuleNode tree = nn::walk_modules(model);
    check_class_names(tree);
    choose(tree);
    for (nn::UnitState* unit : chosen_) unit->set_recompute(true);
    return static_cast<int>(chosen_.size());
  }

 private:
  void check_class_names(const nn::ModuleNode& tree) const {
    if (policy_.kind_ != RecomputePolicy::Kind::classes) return;
    std::set<std::string> known;
    nn::for_each_node(tree, [&](const nn::ModuleNode& node) { known.insert(node.class_name); });
    for (const std::string& name : policy_.names_) {
      if (known.contains(name)) continue;
      fail_as(ErrorKind::usage, "recompute: no module of class '{}'; the model has {}", name,
              fmt::join(known, ", "));
    }
  }

  bool names(const nn::ModuleNode& node) const {
    return std::ranges::find(policy_.names_, node.class_name) != policy_.names_.end();
  }

  static bool is_vocabulary(const nn::ModuleNode& node) {
    const auto* unit = dynamic_cast<const nn::UnitState*>(node.module);
    return unit != nullptr && unit->vocabulary_part() != nn::VocabularyPart::none;
  }

  bool wants(const nn::ModuleNode& node) const {
    switch (policy_.kind_) {
      case RecomputePolicy::Kind::none:
        return false;
      case RecomputePolicy::Kind::all:
        return !node.path.empty() && !is_vocabulary(node);
      case RecomputePolicy::Kind::classes:
        return names(node);
      case RecomputePolicy::Kind::predicate:
        return policy_.predicate_({node.path, node.class_name});
    }
    return false;
  }

  void choose(const nn::ModuleNode& node) {
    auto* unit = dynamic_cast<nn::UnitState*>(node.module);
    if (unit == nullptr && policy_.kind_ == RecomputePolicy::Kind::classes && names(node)) {
      fail_as(ErrorKind::usage, "recompute: module '{}' of class {} is no unit; {}",
              node.path.empty() ? "(root)" : node.path, node.class_name,
              nn::how_to_make_unit(*node.module));
    }
    if (unit != nullptr && wants(node)) {
      chosen_.push_back(unit);
      if (policy_.kind_ == RecomputePolicy::Kind::all) return;
    }
    for (const nn::ModuleNode& child : node.children) choose(child);
  }

  const RecomputePolicy& policy_;
  std::vector<nn::UnitState*> chosen_;
};

int recompute_units(torch::nn::Module& model, const RecomputePolicy& policy) {
  return RecomputeSwitch(policy).turn_on(model);
}

}  // namespace fullshard
