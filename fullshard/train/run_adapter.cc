// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run_adapter.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/hub_cache.h"
#include "fullshard/base/text_file.h"
#include "fullshard/models/lora/add_lora.h"
#include "fullshard/train/adapter.h"
#include "fullshard/train/new_head.h"

namespace fullshard::train {
namespace {

constexpr const char* kRegexCharacters = "*+?()[]{}|\\^$";

// "a,b" and "a b" alike.
std::vector<std::string> names_in(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const std::string& word : words) {
    for (size_t begin = 0; begin <= word.size();) {
      const size_t end = std::min(word.find(',', begin), word.size());
      if (end > begin) names.push_back(word.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return names;
}

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

std::string module_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

// What no file gives cannot stay as it is drawn.
void train_new_parameters(const LanguageModel& model, const std::vector<std::string>& drawn,
                          LoraOptions& lora) {
  if (!model.class_names().empty()) add_once(lora.modules_to_save, "classifier");
  for (const std::string& parameter : drawn) {
    const std::string path = module_of(parameter);
    const bool is_known = std::ranges::any_of(
        lora.modules_to_save, [&](const std::string& name) { return path.ends_with(name); });
    if (!is_known) lora.modules_to_save.push_back(path);
  }
}

// The head is the embedding, which PEFT would train as an embedding only.
void refuse_tied_table(const LanguageModel& model, const LoraLayers& layers) {
  const bool is_tied = model.is_ignored_in_files("lm_head.weight") ||
                       model.is_ignored_in_files("cls.predictions.decoder.weight");
  if (!is_tied || !model.class_names().empty()) return;
  for (const auto& item : model.named_parameters()) {
    const bool is_table = item.value().dim() == 2 && item.value().size(0) == model.vocabulary();
    const std::string path = module_of(item.key());
    const bool is_saved = std::ranges::any_of(layers.saved, [&](const std::string& saved) {
      return path == saved || path.starts_with(saved + ".");
    });
    if (!is_table || !is_saved) continue;
    fail_as(ErrorKind::usage,
            "lora: module to save '{}' is also the head (tie_word_embeddings): PEFT would train a "
            "copy of it, and the adapter would mean another model there; leave it out",
            path);
  }
}

void check_adapter_flags(const RunOptions& options) {
  const LoraRunOptions& flags = options.lora;
  if (flags.rank > 0 && !options.adapter.empty()) {
    fail_as(ErrorKind::usage,
            "--adapter: its adapter_config.json says the rank and the target modules; leave out "
            "--lora-rank and its like");
  }
  if (!options.base_precision.empty() && !has_adapter(options) && !options.only_computes) {
    fail_as(ErrorKind::usage,
            "--base-precision: the base is frozen only beside an adapter; give --lora-rank or "
            "--adapter");
  }
  if (flags.rank == 0 && flags.is_any()) {
    fail_as(ErrorKind::usage,
            "--lora-alpha, --lora-dropout, --lora-targets, --lora-modules-to-save and "
            "--lora-rslora: without effect; give --lora-rank");
  }
}

}  // namespace

bool has_adapter(const RunOptions& options) {
  return options.lora.rank > 0 || !options.adapter.empty();
}

LoraOptions lora_options_of(const LoraRunOptions& flags) {
  LoraOptions options;
  options.rank = flags.rank;
  options.alpha = flags.alpha.value_or(options.alpha);
  options.dropout = flags.dropout.value_or(0);
  options.use_rslora = flags.use_rslora;
  options.modules_to_save = names_in(flags.modules_to_save);
  const bool is_pattern = flags.targets.size() == 1 && flags.targets.front().find_first_of(
                                                           kRegexCharacters) != std::string::npos;
  if (is_pattern) {
    options.target_pattern = flags.targets.front();
  } else {
    options.target_modules = names_in(flags.targets);
  }
  return options;
}

std::optional<AdapterConfig> adapt_model(LanguageModel& model, const RunOptions& options,
                                         const std::vector<std::string>& drawn) {
  check_adapter_flags(options);
  std::optional<AdapterConfig> config;
  if (has_adapter(options)) {
    LoraOptions lora = options.adapter.empty() ? lora_options_of(options.lora)
                                               : load_adapter_config(options.adapter).lora;
    if (!options.only_computes) train_new_parameters(model, drawn, lora);
    lora = with_target_modules(lora, model);
    refuse_tied_table(model, add_lora(model, lora));
    config = adapter_config_of(model, lora, options.model);
  }
  if (options.base_precision == "int8") {
    if (options.only_computes) {
      for (auto& parameter : model.parameters()) parameter.set_requires_grad(false);
    }
    quantise_base(model);
  }
  return config;
}

std::string adapter_text(const LanguageModel& model) {
  int64_t num_layers = 0, trained = 0, all = 0;
  for (const auto& item : model.named_parameters()) {
    const bool is_scale = item.key().ends_with(".weight_scale");
    if (item.key().ends_with(".lora_A.weight")) ++num_layers;
    if (!is_scale) all += item.value().numel();
    if (item.value().requires_grad()) trained += item.value().numel();
  }
  const double share = 100 * static_cast<double>(trained) / static_cast<double>(all);
  return fmt::format("LoRA: {} layers, {} of {} parameters are trained ({:.2f} %)", num_layers,
                     trained, all, share);
}

void fill_adapters(ShardedModel& model, const RunOptions& options,
                   const std::vector<std::string>& drawn) {
  if (!options.adapter.empty()) {
    load_adapter(options.adapter, model,
                 options.only_computes ? drawn : std::vector<std::string>());
  } else if (options.lora.rank > 0) {
    draw_adapters(model, options.seed);
  }
}

ModelSource with_adapter_config(ModelSource source, const RunOptions& options) {
  if (options.adapter.empty()) return source;
  if (auto config =
          base::find_text_file(base::path_or_cached_model(options.adapter) + "/config.json")) {
    source.config_json = std::move(*config);
  }
  return source;
}

std::shared_ptr<LanguageModel> make_planned_model(const ModelSource& source,
                                                  const RunOptions& options) {
  auto model = make_deferred_model(with_adapter_config(source, options), /*needs_head=*/true);
  std::vector<std::string> drawn;
  if (has_adapter(options)) drawn = new_head(source, *model, options.new_head);
  adapt_model(*model, options, drawn);
  return model;
}

}  // namespace fullshard::train
