// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/auto_values.h"

#include <algorithm>
#include <array>

#include "fullshard/base/error.h"
#include "fullshard/config/schema/batch_sizes.h"

namespace fullshard {
namespace {

constexpr std::string_view kBatchPath = "train_batch_size";
constexpr std::string_view kMicroPath = "train_micro_batch_size_per_gpu";
constexpr std::string_view kAccumulationPath = "gradient_accumulation_steps";
constexpr std::string_view kTotalSteps = "scheduler.params.total_num_steps";
constexpr auto kTrainer = "the Trainer's default";
constexpr std::string_view kLr = "optimizer.params.lr";
constexpr std::array<std::string_view, 3> kOfHiddenSize = {
    "zero_optimization.reduce_bucket_size", "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold"};
constexpr int64_t kMostHidden = 1'000'000'000;  // its square is an int64

class AutoFiller {
 public:
  explicit AutoFiller(config::Settings& settings) : settings_(settings) {}

  void fill(std::string_view path, config::ConfigNode value, std::string from) {
    if (!settings_.is_auto(path)) return;
    Origin origin = settings_.find(path)->origin;
    origin.from = Origin::From::derived;
    origin.note = std::move(from);
    settings_.put(path, std::move(value), std::move(origin));
  }

 private:
  config::Settings& settings_;
};

config::ConfigNode list_of(double a, double b) {
  config::ConfigNode list;
  list.kind = config::NodeKind::list;
  list.items = {config::ConfigNode::of_number(a), config::ConfigNode::of_number(b)};
  return list;
}

std::optional<int64_t> given(const config::Settings& settings, std::string_view path) {
  const config::Settings::Entry* entry = settings.find(path);
  if (entry == nullptr || entry->value.kind != config::NodeKind::integer) return std::nullopt;
  return entry->value.integer;
}

// Ignores values resolved from "auto", which a flag may still replace.
std::optional<int64_t> said(const config::Settings& settings, std::string_view path) {
  const config::Settings::Entry* entry = settings.find(path);
  return entry != nullptr && entry->origin.is_explicit() ? given(settings, path) : std::nullopt;
}

// The optimizer's rate: the one that was set, else the one of the inputs.
std::pair<double, std::string> effective_lr(const config::Settings& settings,
                                            const AutoInputs& inputs) {
  const config::Settings::Entry* entry = settings.find(kLr);
  if (entry == nullptr || settings.is_auto(kLr)) return {inputs.learning_rate, "learning_rate"};
  return {entry->value.number, std::string(kLr)};
}

void fill_from_hidden_size(AutoFiller& filler, int64_t hidden) {
  const int64_t square = hidden * hidden;
  filler.fill(kOfHiddenSize[0], config::ConfigNode::of_integer(square), "hidden_size squared");
  filler.fill(
      kOfHiddenSize[1],
      config::ConfigNode::of_integer(static_cast<int64_t>(0.9 * static_cast<double>(square))),
      "0.9 hidden_size squared");
  filler.fill(kOfHiddenSize[2], config::ConfigNode::of_integer(10 * hidden), "10 hidden_size");
}

bool is_of_hidden_size(std::string_view path) {
  return std::find(kOfHiddenSize.begin(), kOfHiddenSize.end(), path) != kOfHiddenSize.end();
}

}  // namespace

void resolve_auto(config::Settings& deepspeed, const AutoInputs& inputs) {
  AutoFiller filler(deepspeed);
  const auto [lr, lr_source] = effective_lr(deepspeed, inputs);
  filler.fill("gradient_clipping", config::ConfigNode::of_number(inputs.max_grad_norm),
              "max_grad_norm");
  filler.fill(kLr, config::ConfigNode::of_number(inputs.learning_rate), "learning_rate");
  filler.fill("optimizer.params.betas", list_of(inputs.adam_beta1, inputs.adam_beta2),
              "adam_beta1 and adam_beta2");
  filler.fill("optimizer.params.eps", config::ConfigNode::of_number(inputs.adam_epsilon),
              "adam_epsilon");
  filler.fill("optimizer.params.weight_decay", config::ConfigNode::of_number(inputs.weight_decay),
              "weight_decay");
  filler.fill("scheduler.params.warmup_min_lr", config::ConfigNode::of_number(0),
              "the Trainer's rule");
  filler.fill("scheduler.params.warmup_max_lr", config::ConfigNode::of_number(lr), lr_source);
  filler.fill("scheduler.params.warmup_num_steps",
              config::ConfigNode::of_integer(std::max<int64_t>(1, inputs.warmup_steps)),
              "warmup_steps");
  filler.fill(kMicroPath, config::ConfigNode::of_integer(inputs.per_device_train_batch_size),
              kTrainer);
  filler.fill(kAccumulationPath, config::ConfigNode::of_integer(inputs.gradient_accumulation_steps),
              kTrainer);
  filler.fill("fp16.enabled", config::ConfigNode::of_boolean(inputs.fp16), "--fp16");
  filler.fill("bf16.enabled", config::ConfigNode::of_boolean(inputs.bf16), "--bf16");
  if (inputs.num_training_steps) {
    filler.fill(kTotalSteps, config::ConfigNode::of_integer(*inputs.num_training_steps),
                "the steps of the run");
  }
  if (inputs.hidden_size && *inputs.hidden_size <= kMostHidden) {
    fill_from_hidden_size(filler, *inputs.hidden_size);
  }
  // DeepSpeed drops "auto" from its typed sections, so the default applies.
  for (const std::string& path : unresolved_keys(deepspeed)) {
    const bool waits = path == kBatchPath || path == kTotalSteps || is_of_hidden_size(path);
    if (!waits) filler.fill(path, config::fallback_of(*deepspeed.key_of(path)), "its default");
  }
}

std::optional<int64_t> ranks_of_batch(const config::Settings& deepspeed) {
  const auto batch = said(deepspeed, kBatchPath);
  const auto micro = said(deepspeed, kMicroPath);
  const auto accumulation = said(deepspeed, kAccumulationPath);
  if (!batch || !micro || !accumulation) return std::nullopt;
  const int64_t unit = *micro * *accumulation;
  if (*batch % unit != 0) return std::nullopt;
  return *batch / unit;
}

void check_batch_for_any_ranks(const config::Settings& deepspeed, Problems& problems) {
  const auto batch = given(deepspeed, kBatchPath);
  if (!batch) return;
  int64_t unit = 1;
  std::string what;
  for (const std::string_view path : {kMicroPath, kAccumulationPath}) {
    const auto value = said(deepspeed, path);
    if (!value) continue;
    unit *= *value;
    what += fmt::format("{}{} {}", what.empty() ? "" : " times ", path, *value);
  }
  if (*batch % unit == 0) return;
  const Origin& origin = deepspeed.find(kBatchPath)->origin;
  problems.errors.push_back(
      {.file = origin.file,
       .line = origin.line,
       .key = origin.key,
       .message =
           fmt::format("is {}, expected a multiple of {} on any number of ranks", *batch, what)});
}

void resolve_batch(config::Settings& deepspeed, const AutoInputs& inputs, int64_t ranks,
                   Problems& problems) {
  BatchSizeOptions options{.train_batch_size = given(deepspeed, kBatchPath),
                           .train_micro_batch_size_per_gpu = given(deepspeed, kMicroPath),
                           .gradient_accumulation_steps = given(deepspeed, kAccumulationPath)};
  const bool takes_micro = !options.train_micro_batch_size_per_gpu && !options.train_batch_size;
  if (takes_micro) options.train_micro_batch_size_per_gpu = inputs.per_device_train_batch_size;
  const config::Settings::Entry* culprit = nullptr;
  for (const std::string_view path : {kAccumulationPath, kMicroPath, kBatchPath}) {
    if (const config::Settings::Entry* entry = deepspeed.find(path)) culprit = entry;
  }
  const auto put = [&](std::string_view path, int64_t value, bool is_of_inputs = false) {
    const config::Settings::Entry* entry = deepspeed.find(path);
    if (entry != nullptr && entry->value.kind == config::NodeKind::integer) return;
    Origin origin = entry != nullptr ? entry->origin : Origin{.key = std::string(path)};
    origin.from = Origin::From::derived;
    origin.note = is_of_inputs ? kTrainer : fmt::format("{} ranks", ranks);
    origin.ranks = is_of_inputs ? 0 : ranks;
    deepspeed.put(path, config::ConfigNode::of_integer(value), std::move(origin));
  };
  try {
    const BatchSizes sizes = derive_batch_sizes(options, ranks);
    put(kBatchPath, sizes.global_batch);
    put(kMicroPath, sizes.micro_batch, takes_micro);
    put(kAccumulationPath, sizes.accumulation);
  } catch (const Error& error) {
    const Origin origin = culprit != nullptr ? culprit->origin : Origin{};
    std::string message = error.what();
    if (message.starts_with(origin.key)) message.erase(0, origin.key.size() + 1);
    problems.errors.push_back({.file = origin.file,
                               .line = origin.line,
                               .key = origin.key,
                               .message = std::move(message)});
  }
}

std::vector<std::string> unresolved_keys(const config::Settings& settings) {
  std::vector<std::string> keys;
  for (const auto& [path, entry] : settings.entries()) {
    if (settings.is_auto(path) && entry.key->fallback != "auto") keys.push_back(path);
  }
  return keys;
}

AutoNeed need_of(std::string_view path) {
  if (path == kTotalSteps) return AutoNeed::steps;
  return is_of_hidden_size(path) ? AutoNeed::hidden_size : AutoNeed::ranks;
}

std::string_view name_of(AutoNeed need) {
  switch (need) {
    case AutoNeed::ranks:
      return "the number of ranks";
    case AutoNeed::steps:
      return "the run's steps";
    case AutoNeed::hidden_size:
      break;
  }
  return "the model's hidden_size";
}

}  // namespace fullshard
