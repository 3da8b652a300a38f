// SPDX-License-Identifier: Apache-2.0
// Settings that differ between parameters, chosen by a pattern in the parameter's name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fullshard {

class ShardedModel;

struct ParameterRule {
  std::string pattern = {};  // regular expression, searched in the parameter's name
  std::optional<double> weight_decay = {};
  double lr_scale = 1;
  bool may_match_nothing = false;
  bool takes_layer_norms = false;  // and whatever a LayerNorm holds, under any name
};

// No weight decay for biases and for the weights of norms, as the Trainer groups them: by the usual
// names, and a LayerNorm by its class. Another norm under a name of your own needs a rule of yours.
std::vector<ParameterRule> no_decay_for_norms_and_biases();

// What the rules come to for one parameter.
struct ParameterSettings {
  std::string name;
  std::optional<double> weight_decay;  // absent: the optimizer's
  double lr_scale = 1;
  uint64_t name_hash = 0;  // keys its random numbers
  int index = 0;           // its place among all trainable parameters; the same on every rank
};

// The settings of all trainable parameters of a model, also of those that other ranks own.
class ParameterTable {
 public:
  // For each parameter the first rule whose pattern is found in one of its names, or that takes the
  // module which holds it, counts. A rule without any parameter is an error that shows names that
  // exist.
  ParameterTable(std::string_view optimizer, const ShardedModel& model,
                 const std::vector<ParameterRule>& rules);

  const ParameterSettings& of(const std::string& name) const {
    return settings_[by_name_.at(name)];
  }
  int size() const { return static_cast<int>(settings_.size()); }

 private:
  std::vector<ParameterSettings> settings_;
  std::unordered_map<std::string, int> by_name_;
};

}  // namespace fullshard
