// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/wrap.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/engine/plan/ignored_modules.h"
#include "fullshard/engine/plan/unit_name.h"
#include "fullshard/nn/unit_hint.h"

namespace fullshard {

WrapPolicy WrapPolicy::marked() { return {}; }

WrapPolicy WrapPolicy::classes(std::vector<std::string> names) {
  WrapPolicy policy;
  policy.kind_ = Kind::classes;
  policy.names_ = std::move(names);
  return policy;
}

WrapPolicy WrapPolicy::min_size(int64_t numel) {
  WrapPolicy policy;
  policy.kind_ = Kind::min_size;
  policy.min_numel_ = numel;
  return policy;
}

WrapPolicy WrapPolicy::none() {
  WrapPolicy policy;
  policy.kind_ = Kind::none;
  return policy;
}

WrapPolicy WrapPolicy::predicate(Predicate predicate) {
  WrapPolicy policy;
  policy.kind_ = Kind::predicate;
  policy.predicate_ = std::move(predicate);
  return policy;
}

std::string WrapPolicy::text() const {
  switch (kind_) {
    case Kind::marked:
      return "marked";
    case Kind::classes:
      return fmt::format("classes {}", fmt::join(names_, ", "));
    case Kind::min_size:
      return fmt::format("min_size {}", min_numel_);
    case Kind::none:
      return "none";
    case Kind::predicate:
      return "predicate";
  }
  return {};
}

int64_t UnitPlan::numel() const {
  int64_t total = 0;
  for (const auto& parameter : parameters) total += parameter.tensor.numel();
  return total;
}

int64_t UnitPlan::largest_tensor() const {
  int64_t largest = 0;
  for (const auto& parameter : parameters) largest = std::max(largest, parameter.tensor.numel());
  return largest;
}

// Walks the tree several times: choose units bottom-up, add embedding and head where they are
// large, number the units top-down, hand out parameters.
class UnitPlanner {
 public:
  UnitPlanner(torch::nn::Module& root, const WrapPolicy& policy, const std::string& ignored)
      : tree_(nn::walk_modules(root)), policy_(policy), ignored_(ignored) {}

  WrapPlan plan(bool advises) {
    check_class_names();
    check_not_sharded(tree_);
    check_hooks(tree_);
    choose(tree_, /*is_root=*/true);
    choose_large_vocabulary();
    number(tree_, -1);
    hand_out_parameters();
    for (const auto* node : ignored_nodes_) list_ignored(*node);
    if (advises) warn_about_large_units();
    return std::move(plan_);
  }

 private:
  bool is_ignored(const nn::ModuleNode& node) const { return ignored_.has(node.path); }

  void check_class_names() const {
    if (policy_.kind_ != WrapPolicy::Kind::classes) return;
    std::set<std::string> known;
    nn::for_each_node(tree_, [&](const nn::ModuleNode& node) { known.insert(node.class_name); });
    for (const auto& name : policy_.names_) {
      if (known.count(name)) continue;
      fail_as(ErrorKind::usage, "wrap: no module of class '{}'; the model has {}", name,
              fmt::join(known, ", "));
    }
  }

  static std::string shown_path(const nn::ModuleNode& node) {
    return node.path.empty() ? "(root)" : node.path;
  }

  void check_not_sharded(const nn::ModuleNode& node) const {
    if (is_ignored(node)) return;
    const auto* state = dynamic_cast<nn::UnitState*>(node.module);
    if (state && state->hooks()) {
      fail_as(
          ErrorKind::usage,
          "shard: module '{}' of class {} is sharded already, and a module is sharded once: for "
          "other options end its ShardedModel, build the module again and shard that "
          "(save_weights and load_weights take its values along)",
          shown_path(node), node.class_name);
    }
    for (const auto& child : node.children) check_not_sharded(child);
  }

  // A unit whose forward goes past its hooks would be met by nothing but released parameters.
  void check_hooks(const nn::ModuleNode& node) const {
    if (is_ignored(node)) return;
    const auto* state = dynamic_cast<nn::UnitState*>(node.module);
    if (state && !state->runs_hooks()) {
      fail_as(ErrorKind::usage,
              "shard: module '{}' of class {} derives from fullshard::Unit, but its forward does "
              "not run the hooks that gather its parameters; {}",
              shown_path(node), node.class_name, nn::how_to_run_hooks(*node.module));
    }
    for (const auto& child : node.children) check_hooks(child);
  }

  bool wants(const nn::ModuleNode& node, int64_t numel) const {
    const auto* state = dynamic_cast<nn::UnitState*>(node.module);
    switch (policy_.kind_) {
      case WrapPolicy::Kind::marked:
        return state != nullptr && state->vocabulary_part() == nn::VocabularyPart::none;
      case WrapPolicy::Kind::none:
        return false;
      case WrapPolicy::Kind::min_size:
        return state != nullptr && numel >= policy_.min_numel_;
      case WrapPolicy::Kind::classes:
        return std::find(policy_.names_.begin(), policy_.names_.end(), node.class_name) !=
               policy_.names_.end();
      case WrapPolicy::Kind::predicate:
        return policy_.predicate_({node.path, node.class_name, numel});
    }
    return false;
  }

  // Marks the units below and at `node`; returns the parameters there that none of them holds.
  int64_t choose(const nn::ModuleNode& node, bool is_root) {
    if (is_ignored(node)) return 0;
    int64_t numel = 0;
    for (const auto& parameter : node.parameters) numel += parameter.tensor.numel();
    for (const auto& child : node.children) numel += choose(child, false);
    if (!is_root && !wants(node, numel)) return numel;
    if (!dynamic_cast<nn::UnitState*>(node.module)) {
      fail_as(ErrorKind::usage, "wrap: module '{}' of class {} is no unit; {}", shown_path(node),
              node.class_name, nn::how_to_make_unit(*node.module));
    }
    chosen_.insert(node.module);
    if (!is_root) largest_unit_ = std::max(largest_unit_, numel);
    return 0;
  }

  bool adds_vocabulary() const {
    return policy_.kind_ == WrapPolicy::Kind::marked || policy_.kind_ == WrapPolicy::Kind::classes;
  }

  void choose_large_vocabulary() {
    if (!adds_vocabulary()) return;
    std::unordered_map<c10::TensorImpl*, int> num_uses;
    nn::for_each_node(tree_, [&](const nn::ModuleNode& node) {
      for (const auto& parameter : node.parameters) ++num_uses[key(parameter)];
    });
    // A tied parameter would stay with the unit around both of its users.
    const auto untied_numel = [&](const nn::ModuleNode& node) {
      int64_t numel = 0;
      for (const auto& parameter : node.parameters) {
        if (num_uses[key(parameter)] == 1) numel += parameter.tensor.numel();
      }
      return numel;
    };
    const int64_t least = std::max(largest_unit_, kSmallestVocabularyUnit);
    add_vocabulary(tree_, [&](const nn::ModuleNode& node) { return untied_numel(node) >= least; });
  }

  void add_vocabulary(const nn::ModuleNode& node,
                      const std::function<bool(const nn::ModuleNode&)>& large) {
    if (is_ignored(node)) return;
    const auto* state = dynamic_cast<nn::UnitState*>(node.module);
    const bool is_part = state && state->vocabulary_part() != nn::VocabularyPart::none;
    if (is_part && large(node)) chosen_.insert(node.module);
    for (const auto& child : node.children) add_vocabulary(child, large);
  }

  void number(const nn::ModuleNode& node, int unit) {
    if (is_ignored(node)) {
      ignored_nodes_.push_back(&node);
      return;
    }
    if (chosen_.count(node.module)) {
      plan_.units.push_back({node.path,
                             node.class_name,
                             dynamic_cast<nn::UnitState*>(node.module),
                             unit,
                             {},
                             {},
                             {},
                             {}});
      unit = static_cast<int>(plan_.units.size()) - 1;
    } else if (auto* state = dynamic_cast<nn::UnitState*>(node.module)) {
      plan_.units[unit].inner.push_back(state);
    }
    for (const auto& parameter : node.parameters) {
      uses_[key(parameter)].push_back({unit, nn::join_path(node.path, parameter.name)});
      if (uses_[key(parameter)].size() == 1) order_.push_back(parameter.tensor);
    }
    for (const auto& buffer : node.buffers) {
      plan_.units[unit].buffers.push_back({nn::join_path(node.path, buffer.name), buffer.tensor});
    }
    for (const auto& child : node.children) number(child, unit);
  }

  // The smallest unit that contains both.
  int common_unit(int a, int b) const {
    while (a != b) (a > b ? a : b) = plan_.units[std::max(a, b)].parent;
    return a;
  }

  void hand_out_parameters() {
    for (const auto& tensor : order_) {
      const auto& uses = uses_[tensor.unsafeGetTensorImpl()];
      engine::NamedParameter parameter{{}, tensor};
      int unit = uses.front().unit;
      for (const auto& use : uses) {
        unit = common_unit(unit, use.unit);
        parameter.names.push_back(use.name);
      }
      for (const auto& use : uses) note_lender(unit, use.unit);
      plan_.units[unit].parameters.push_back(std::move(parameter));
    }
  }

  void list_ignored(const nn::ModuleNode& ignored) {
    nn::for_each_node(ignored, [&](const nn::ModuleNode& node) {
      for (const auto& parameter : node.parameters) {
        if (uses_.count(key(parameter))) continue;  // a unit's too
        const auto name = nn::join_path(node.path, parameter.name);
        auto& listed = plan_.ignored_parameters;
        const auto same =
            std::find_if(listed.begin(), listed.end(), [&](const engine::NamedParameter& other) {
              return other.tensor.is_same(parameter.tensor);
            });
        if (same != listed.end()) {
          same->names.push_back(name);
        } else {
          listed.push_back({{name}, parameter.tensor});
        }
      }
      for (const auto& buffer : node.buffers) {
        plan_.ignored_buffers.push_back({nn::join_path(node.path, buffer.name), buffer.tensor});
      }
    });
  }

  // `owner` holds a parameter that `user`, nested in it, uses; so do the units in between.
  void note_lender(int owner, int user) {
    for (; user != owner; user = plan_.units[user].parent) {
      auto& lenders = plan_.units[user].lenders;
      if (std::find(lenders.begin(), lenders.end(), owner) == lenders.end()) {
        lenders.push_back(owner);
      }
    }
  }

  // A single tensor is never cut into units: nothing can be done about one that is most of the
  // model.
  void warn_about_large_units() {
    int64_t total = 0;
    for (const auto& unit : plan_.units) total += unit.numel();
    for (const auto& unit : plan_.units) {
      const bool is_large = unit.numel() * 2 > total;
      if (!is_large || plan_.units.size() == 1 || unit.largest_tensor() * 2 > total) continue;
      plan_.warnings.push_back(fmt::format(
          "{} holds {} of {} parameters: its full size is gathered at once; make units of the "
          "modules below it to save memory",
          engine::describe_unit(unit.path), format_count(unit.numel()), format_count(total)));
    }
    warn_about_large_plain_modules(tree_);
  }

  // A size-based policy cannot wrap a module that is no unit: say so instead of gathering it whole.
  void warn_about_large_plain_modules(const nn::ModuleNode& node) {
    if (policy_.kind_ != WrapPolicy::Kind::min_size) return;
    for (const auto& child : node.children) {
      int64_t numel = 0;
      nn::for_each_node(child, [&](const nn::ModuleNode& below) {
        for (const auto& parameter : below.parameters) numel += parameter.tensor.numel();
      });
      if (numel >= policy_.min_numel_ && !dynamic_cast<nn::UnitState*>(child.module)) {
        plan_.warnings.push_back(fmt::format(
            "module '{}' of class {} has {} parameters but is no unit, so it cannot be wrapped by "
            "size; {}",
            child.path, child.class_name, format_count(numel),
            nn::how_to_make_unit(*child.module)));
      }
      warn_about_large_plain_modules(child);
    }
  }

  static c10::TensorImpl* key(const nn::NamedTensor& named) {
    return named.tensor.unsafeGetTensorImpl();
  }

  struct Use {
    int unit;
    std::string name;
  };

  nn::ModuleNode tree_;
  const WrapPolicy& policy_;
  engine::IgnoredModules ignored_;
  std::set<torch::nn::Module*> chosen_;
  int64_t largest_unit_ = 0;  // below the root, as the policy chose them
  std::vector<const nn::ModuleNode*> ignored_nodes_;
  std::unordered_map<c10::TensorImpl*, std::vector<Use>> uses_;
  std::vector<at::Tensor> order_;
  WrapPlan plan_;
};

WrapPlan plan_units(torch::nn::Module& root, const WrapPolicy& policy, const std::string& ignored,
                    bool advises) {
  return UnitPlanner(root, policy, ignored).plan(advises);
}

std::string WrapPlan::tree() const {
  std::vector<int> depth(units.size(), 0);
  std::string text;
  for (size_t i = 0; i < units.size(); ++i) {
    const auto& unit = units[i];
    if (unit.parent >= 0) depth[i] = depth[unit.parent] + 1;
    int64_t bytes = 0;
    for (const auto& parameter : unit.parameters) {
      bytes += static_cast<int64_t>(parameter.tensor.nbytes());
    }
    const auto label = fmt::format("{:{}}{} ({})", "", 2 * depth[i],
                                   unit.path.empty() ? "root" : unit.path, unit.class_name);
    text += fmt::format("{:<44} {:>9} parameters {:>10}\n", label, format_count(unit.numel()),
                        format_bytes(bytes));
  }
  return text;
}

}  // namespace fullshard
