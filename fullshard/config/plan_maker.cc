// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/plan_maker.h"

#include <fmt/format.h>

#include <cstdlib>

#include "fullshard/config/checks.h"
#include "fullshard/config/document/reader.h"
#include "fullshard/config/schema/value_check.h"
#include "fullshard/config/unused_flags.h"

namespace fullshard::config {

Plan PlanMaker::make(std::string_view text, const std::string& name) {
  const auto root = read_config(text, name, problems_);
  if (!root) return {};
  const Family family = tell_family(*root, looks_like_json(text));
  file_ = name;
  family_ = family;
  names_type_ = root->find("distributed_type") != nullptr;
  return make_from(
      read_settings(*root, name, family, {.allow_unknown = options_.allow_unknown}, problems_));
}

Plan PlanMaker::make_from_words(const std::string& words, const std::string& config_file) {
  Settings settings(Family::trainer);
  if (!config_file.empty()) {
    const ConfigText source = read_config_file(config_file, "the Trainer's fsdp_config, a JSON");
    const auto root = read_config(source.text, source.name, problems_);
    if (!root) return {};
    settings = read_settings(*root, source.name, Family::trainer,
                             {.allow_unknown = options_.allow_unknown}, problems_);
  }
  if (!words.empty()) {
    ConfigNode list;
    list.kind = NodeKind::list;
    list.items.push_back(ConfigNode::of_text(words));
    settings.put("fsdp", std::move(list),
                 {.from = Origin::From::flag, .key = "fsdp", .note = "--fsdp"});
  }
  return make_from(std::move(settings));
}

Plan PlanMaker::make_default() {
  const auto is_deepspeeds = [](const std::string& key) {
    const Settings accelerate(Family::accelerate);
    return accelerate.key_of(key) == nullptr;
  };
  bool speaks_deepspeed = false;
  for (const FlagValue& flag : options_.flags) {
    speaks_deepspeed |= name_of_flag(flag.flag) == "zero_stage";
  }
  for (const std::string& text : options_.overrides) {
    speaks_deepspeed |= is_deepspeeds(text.substr(0, text.find('=')));
  }
  Settings settings(speaks_deepspeed ? Family::deepspeed : Family::accelerate);
  const auto put = [&](std::string_view path, ConfigNode value) {
    settings.put(path, std::move(value), {.key = std::string(path)});
  };
  if (speaks_deepspeed) {
    put("zero_optimization.stage", ConfigNode::of_integer(3));
  } else {
    put("distributed_type", ConfigNode::of_text("FSDP"));
    put("fsdp_config.fsdp_auto_wrap_policy", ConfigNode::of_text("TRANSFORMER_BASED_WRAP"));
  }
  put_launched_precision(settings);
  return make_from(std::move(settings));
}

Plan PlanMaker::make_from(Settings settings) {
  apply_overrides(settings);
  Plan plan;
  switch (settings.family()) {
    case Family::deepspeed:
      fill_from_deepspeed(plan, settings);
      apply_launched_fp8(plan);
      plan.settings_ = std::move(plan.deepspeed_);
      plan.deepspeed_ = nullptr;
      break;
    case Family::accelerate:
      fill_from_accelerate(plan, settings);
      break;
    case Family::trainer:
      fill_from_trainer(plan, settings);
      break;
  }
  if (plan.settings_ == nullptr) plan.settings_ = std::make_shared<Settings>(std::move(settings));
  apply_flags(plan, left_flags_, problems_);
  const auto ranks = options_.ranks ? options_.ranks : plan.launch.ranks.value;
  const auto device = options_.device ? options_.device : plan.launch.device.value;
  check_plan(plan, ranks, device, problems_);
  if (problems_.ok()) {
    note_without_effect(plan, device, problems_);
    note_unused_flags(plan, options_.flags, problems_);
  }
  problems_.sort();
  plan.warnings_ = problems_.warnings;
  return plan;
}

void PlanMaker::apply_overrides(Settings& settings) {
  left_flags_ = apply_flags(settings, options_.flags, problems_);
  for (const std::string& text : options_.overrides) {
    const size_t split = text.find('=');
    if (split == std::string::npos || split == 0) {
      problems_.errors.push_back({.file = "--set",
                                  .key = text,
                                  .message = "has no value",
                                  .suggestion = "write --set key=value"});
      continue;
    }
    apply_set(settings, text.substr(0, split), text.substr(split + 1));
  }
}

// Overrides the file, with a warning; a flag with another value is an error, not ignored.
void PlanMaker::apply_set(Settings& settings, const std::string& path, const std::string& value) {
  const Settings::Entry* found = settings.find(path);
  const std::optional<Settings::Entry> before = found ? std::optional(*found) : std::nullopt;
  settings.override_with(path, value, {.from = Origin::From::flag, .note = "--set"}, problems_);
  if (!before || !binds_flags(before->origin)) return;
  const Settings::Entry* after = settings.find(path);
  if (before->origin.note == "--set") {
    if (same_value(before->value, after->value)) return;
    problems_.errors.push_back(
        {.file = "--set",
         .key = path,
         .message = fmt::format("is {}, but an earlier one says {}", text_of(after->value),
                                text_of(before->value)),
         .suggestion = "keep one of them"});
    return;
  }
  if (after->origin.note != "--set" || same_value(before->value, after->value)) return;
  if (before->origin.from == Origin::From::flag) {
    problems_.errors.push_back(
        contradiction(before->origin, text_of(before->value), {"--set", text_of(after->value)}));
  } else {
    problems_.warnings.push_back(
        overridden(before->origin, text_of(before->value), "--set", text_of(after->value)));
  }
}

void PlanMaker::error(const Origin& origin, std::string message, std::string suggestion) {
  problems_.errors.push_back({.file = origin.file.empty() ? origin.note : origin.file,
                              .line = origin.line,
                              .key = origin.key,
                              .message = std::move(message),
                              .suggestion = std::move(suggestion)});
}

void PlanMaker::warn(const Origin& origin, std::string message, std::string suggestion) {
  problems_.warnings.push_back({.file = origin.file.empty() ? origin.note : origin.file,
                                .line = origin.line,
                                .key = origin.key,
                                .message = std::move(message),
                                .suggestion = std::move(suggestion)});
}

std::vector<std::string> split_names(const std::vector<std::string>& texts) {
  std::vector<std::string> names;
  for (std::string_view text : texts) {
    while (!text.empty()) {
      const std::string_view part = text.substr(0, text.find(','));
      text.remove_prefix(std::min(part.size() + 1, text.size()));
      const size_t begin = part.find_first_not_of(" \t");
      if (begin == std::string_view::npos) continue;
      const size_t end = part.find_last_not_of(" \t");
      names.emplace_back(part.substr(begin, end - begin + 1));
    }
  }
  return names;
}

}  // namespace fullshard::config
