// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/lora/add_lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/printable.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/models/lora/module_names.h"
#include "fullshard/nn/module_walk.h"
#include "fullshard/ops/products/linear.h"

namespace fullshard {
namespace {

using models::is_named;
using models::PathPattern;

// The beginnings of architectures, and what PEFT adapts of them when nobody says.
struct UsualTargets {
  std::string_view architecture;
  std::vector<std::string> names;
};

const std::array<UsualTargets, 6>& usual_targets() {
  static const std::array<UsualTargets, 6> targets = {{{"GPT2", {"c_attn"}},
                                                       {"Llama", {"q_proj", "v_proj"}},
                                                       {"Mistral", {"q_proj", "v_proj"}},
                                                       {"Qwen2", {"q_proj", "v_proj"}},
                                                       {"Bert", {"query", "value"}},
                                                       {"T5", {"q", "v"}}}};
  return targets;
}

[[noreturn]] void refuse_name(const char* what, const std::string& name,
                              const std::vector<std::string>& paths) {
  fail_as(ErrorKind::usage, "{}: no module is called '{}'; there are {}", what,
          base::printable(name, 100), models::near_names(name, paths));
}

// All modules of a model by their paths, and which of them the options mean.
class LoraPlan {
 public:
  LoraPlan(torch::nn::Module& model, const LoraOptions& options) : options_(options) {
    nn::for_each_node(nn::walk_modules(model), [&](const nn::ModuleNode& node) {
      if (node.path.empty()) return;
      modules_.push_back({node.path, node.class_name, node.module});
      auto* linear = dynamic_cast<LinearImpl*>(node.module);
      if (linear != nullptr) linear_paths_.push_back(node.path);
      paths_.push_back(node.path);
    });
    check_numbers();
    compile();
    choose_saved();
    choose_adapted();
  }

  void apply(torch::nn::Module& model) const {
    for (auto& parameter : model.parameters()) {
      if (parameter.is_floating_point()) parameter.set_requires_grad(false);
    }
    for (const Module& module : saved_) {
      for (auto& parameter : module.module->parameters()) parameter.set_requires_grad(true);
    }
    for (const auto& [module, linear] : adapted_) linear->adapt(part_of(module.path));
  }

  LoraLayers layers() const {
    LoraLayers layers;
    for (const auto& [module, linear] : adapted_) layers.adapted.push_back(module.path);
    for (const Module& module : saved_) layers.saved.push_back(module.path);
    return layers;
  }

 private:
  struct Module {
    std::string path;
    std::string class_name;
    torch::nn::Module* module;
  };

  void check_numbers() const {
    const auto check_rank = [](int64_t rank) {
      if (rank < 1) fail_as(ErrorKind::usage, "lora: rank {}, expected at least 1", rank);
    };
    check_rank(options_.rank);
    for (const auto& [pattern, rank] : options_.rank_pattern) check_rank(rank);
    if (!(options_.dropout >= 0 && options_.dropout < 1)) {
      fail_as(ErrorKind::usage, "lora: dropout {}, expected at least 0 and less than 1",
              options_.dropout);
    }
    if (!std::isfinite(options_.alpha)) fail_as(ErrorKind::usage, "lora: alpha is not finite");
    if (!options_.target_modules.empty() && !options_.target_pattern.empty()) {
      fail_as(ErrorKind::usage, "lora: target modules both by names and by a pattern; keep one");
    }
  }

  void compile() {
    if (!options_.target_pattern.empty()) {
      target_.emplace(options_.target_pattern, "lora: target modules");
    }
    for (const auto& [pattern, rank] : options_.rank_pattern) {
      ranks_.emplace_back(PathPattern(pattern, "lora: rank_pattern"), rank);
    }
    for (const auto& [pattern, alpha] : options_.alpha_pattern) {
      alphas_.emplace_back(PathPattern(pattern, "lora: alpha_pattern"), alpha);
    }
  }

  void choose_saved() {
    for (const std::string& name : options_.modules_to_save) {
      bool is_there = false;
      for (const Module& module : modules_) {
        if (name.empty() || !module.path.ends_with(name)) continue;
        is_there = true;
        saved_.push_back(module);
      }
      if (!is_there && !options_.ignores_unmatched) {
        refuse_name("lora: modules to save", name, paths_);
      }
    }
  }

  bool is_all_linear() const {
    return options_.target_modules.size() == 1 && options_.target_modules[0] == models::kAllLinear;
  }

  // Nothing inside a module that is trained as a whole.
  bool is_left_alone(const std::string& path) const {
    return std::ranges::any_of(saved_, [&](const Module& saved) {
      return path == saved.path || path.starts_with(saved.path + ".");
    });
  }

  bool is_target(const Module& module) const {
    if (is_left_alone(module.path)) return false;
    if (target_) return target_->matches(module.path);
    if (is_all_linear()) {
      const auto* linear = dynamic_cast<LinearImpl*>(module.module);
      return linear != nullptr && !linear->is_head();
    }
    return std::ranges::any_of(options_.target_modules, [&](const std::string& name) {
      return is_named(module.path, name);
    });
  }

  void choose_adapted() {
    check_names();
    for (const Module& module : modules_) {
      if (!is_target(module)) continue;
      auto* linear = dynamic_cast<LinearImpl*>(module.module);
      if (linear == nullptr) {
        fail_as(ErrorKind::usage,
                "lora: target module '{}' is a {}, expected a linear layer; name it as a module "
                "to save, which is trained as a whole",
                module.path, module.class_name);
      }
      if (linear->is_head()) {
        fail_as(ErrorKind::usage,
                "lora: target module '{}' is the head, which has no adapter here; name it as a "
                "module to save, which is trained as a whole",
                module.path);
      }
      adapted_.emplace_back(module, linear);
    }
    if (!adapted_.empty()) return;
    fail_as(ErrorKind::usage, "lora: no linear layer matches the target modules '{}'; there are {}",
            base::printable(target_text(), 200), models::near_names("", linear_paths_));
  }

  void check_names() const {
    if (options_.ignores_unmatched || is_all_linear()) return;
    for (const std::string& name : options_.target_modules) {
      const auto matches = [&](const std::string& path) { return is_named(path, name); };
      if (std::ranges::none_of(paths_, matches)) {
        refuse_name("lora: target modules", name, linear_paths_);
      }
    }
  }

  std::string target_text() const {
    if (!options_.target_pattern.empty()) return options_.target_pattern;
    return fmt::format("{}", fmt::join(options_.target_modules, ", "));
  }

  template <class Value>
  static Value first_match(const std::vector<std::pair<PathPattern, Value>>& patterns,
                           const std::string& path, Value otherwise) {
    for (const auto& [pattern, value] : patterns) {
      if (pattern.matches_end(path)) return value;
    }
    return otherwise;
  }

  LowRankOptions part_of(const std::string& path) const {
    const int64_t rank = first_match(ranks_, path, options_.rank);
    const double alpha = first_match(alphas_, path, options_.alpha);
    const auto divisor = static_cast<double>(rank);
    return {.rank = rank,
            .scale = alpha / (options_.use_rslora ? std::sqrt(divisor) : divisor),
            .dropout = options_.dropout};
  }

  const LoraOptions& options_;
  std::vector<Module> modules_;
  std::vector<std::string> paths_, linear_paths_;
  std::optional<PathPattern> target_;
  std::vector<std::pair<PathPattern, int64_t>> ranks_;
  std::vector<std::pair<PathPattern, double>> alphas_;
  std::vector<Module> saved_;
  std::vector<std::pair<Module, LinearImpl*>> adapted_;
};

}  // namespace

LoraOptions with_target_modules(LoraOptions options, const torch::nn::Module& model) {
  if (!options.target_modules.empty() || !options.target_pattern.empty()) return options;
  if (const auto* known = dynamic_cast<const LanguageModel*>(&model)) {
    const std::string architecture = known->architecture();
    for (const auto& [beginning, names] : usual_targets()) {
      if (!architecture.starts_with(beginning)) continue;
      options.target_modules = names;
      return options;
    }
  }
  fail_as(ErrorKind::usage, "lora: no target modules are named, and this model has no usual ones");
}

LoraLayers add_lora(torch::nn::Module& model, const LoraOptions& options) {
  const LoraOptions whole = with_target_modules(options, model);
  const LoraPlan plan(model, whole);
  plan.apply(model);
  return plan.layers();
}

bool is_lora_parameter(const std::string& name) {
  return name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight");
}

int64_t quantise_base(torch::nn::Module& model) {
  int64_t num_layers = 0;
  nn::for_each_node(nn::walk_modules(model), [&](const nn::ModuleNode& node) {
    auto* linear = dynamic_cast<LinearImpl*>(node.module);
    if (linear == nullptr || linear->is_head() || linear->weight.requires_grad()) return;
    linear->quantise();
    ++num_layers;
  });
  return num_layers;
}

}  // namespace fullshard
