// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/parameter_rules.h"

#include <fmt/ranges.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <regex>
#include <set>

#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/nn/module_walk.h"
#include "fullshard/optim/kernels/setting_checks.h"
#include "fullshard/optim/kernels/stochastic_rounding.h"

namespace fullshard {
namespace {

constexpr size_t kNamesShown = 5;

std::regex compile(std::string_view optimizer, const std::string& pattern) {
  try {
    return std::regex(pattern, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error& error) {
    fail("{}: the rule's pattern '{}' is no regular expression: {}", optimizer, pattern,
         error.what());
  }
}

void check_rule(std::string_view optimizer, const ParameterRule& rule) {
  const auto where = fmt::format("{}, rule '{}'", optimizer, rule.pattern);
  if (rule.weight_decay) optim::check_at_least_zero(where, "weight_decay", *rule.weight_decay);
  optim::check_at_least_zero(where, "lr_scale", rule.lr_scale);
}

std::vector<engine::NamedParameter> parameters_of(const ShardedModel& model) {
  std::vector<engine::NamedParameter> all;
  for (const auto* group : engine::EngineAccess::of(model).trainable_groups()) {
    const auto& own = group->spec().parameters;
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

bool is_layer_norm(const nn::ModuleNode& node) {
  return node.class_name == "LayerNorm" ||
         dynamic_cast<const torch::nn::LayerNormImpl*>(node.module) != nullptr;
}

std::set<std::string> names_in_layer_norms(const ShardedModel& model) {
  std::set<std::string> names;
  nn::for_each_node(nn::walk_modules(model.module()), [&](const nn::ModuleNode& node) {
    if (!is_layer_norm(node)) return;
    for (const auto& own : node.parameters) names.insert(nn::join_path(node.path, own.name));
  });
  return names;
}

// A rule ready to be asked about a model's parameters.
class RuleMatch {
 public:
  RuleMatch(std::string_view optimizer, const ParameterRule& rule, const ShardedModel& model)
      : pattern_(compile(optimizer, rule.pattern)) {
    if (rule.takes_layer_norms) in_layer_norms_ = names_in_layer_norms(model);
  }

  bool takes(const engine::NamedParameter& parameter) const {
    return std::any_of(parameter.names.begin(), parameter.names.end(), [&](const auto& name) {
      return std::regex_search(name, pattern_) || in_layer_norms_.contains(name);
    });
  }

 private:
  std::regex pattern_;
  std::set<std::string> in_layer_norms_;
};

[[noreturn]] void refuse_unmatched(std::string_view optimizer, const ParameterRule& rule,
                                   const std::vector<engine::NamedParameter>& parameters) {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(kNamesShown, parameters.size()); ++i) {
    names.push_back(parameters[i].names.front());
  }
  fail(
      "{}: the rule's pattern '{}' is found in no trainable parameter's name, or earlier rules "
      "took them all; there are {} names, as {}",
      optimizer, rule.pattern, parameters.size(), fmt::join(names, ", "));
}

}  // namespace

std::vector<ParameterRule> no_decay_for_norms_and_biases() {
  ParameterRule rule;
  rule.pattern =
      "bias|[Ll]ayer[Nn]orm|(?:RMS|rms)[Nn]orm|(?:^|\\.)norm[0-9]*(?:$|\\.)|_norm(?:$|\\.)|"
      "(?:^|\\.)ln(?:_[0-9a-z]+|[0-9]*)(?:$|\\.)";
  rule.weight_decay = 0;
  rule.may_match_nothing = true;
  rule.takes_layer_norms = true;
  return {rule};
}

ParameterTable::ParameterTable(std::string_view optimizer, const ShardedModel& model,
                               const std::vector<ParameterRule>& rules) {
  std::vector<RuleMatch> matches;
  for (const auto& rule : rules) {
    check_rule(optimizer, rule);
    matches.emplace_back(optimizer, rule, model);
  }
  const auto parameters = parameters_of(model);
  std::vector<bool> matched(rules.size(), false);
  for (const auto& parameter : parameters) {
    ParameterSettings settings;
    settings.name = parameter.names.front();
    settings.name_hash = optim::hash_of(settings.name);
    settings.index = size();
    for (size_t i = 0; i < rules.size(); ++i) {
      if (!matches[i].takes(parameter)) continue;
      settings.weight_decay = rules[i].weight_decay;
      settings.lr_scale = rules[i].lr_scale;
      matched[i] = true;
      break;
    }
    by_name_[settings.name] = settings.index;
    settings_.push_back(std::move(settings));
  }
  for (size_t i = 0; i < rules.size(); ++i) {
    if (!matched[i] && !rules[i].may_match_nothing)
      refuse_unmatched(optimizer, rules[i], parameters);
  }
}

}  // namespace fullshard
