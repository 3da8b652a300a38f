// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/config_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "fullshard/base/file_kind.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/cli/flags/value_checks.h"
#include "fullshard/config/plan_maker.h"
#include "fullshard/config/questionnaire.h"

namespace fullshard::cli {
namespace {

constexpr const char* kGroup = "Configuration";

// A program may start in another folder; a JSON text is not a path and stays as it is.
std::string absolute_place(const std::string& file) {
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(file, ignored);
  return is_there ? std::filesystem::absolute(file).string() : file;
}

}  // namespace

CLI::Option* add_unknown_keys(CLI::App& command, bool& allows) {
  return command
      .add_option_function<std::string>(
          "--unknown-keys", [&allows](const std::string& word) { allows = word == "warn"; },
          "unknown keys of a configuration: error (default), or warn and ignore them")
      ->check(one_of({"error", "warn"}))
      ->type_name("");
}

ConfigFlags::ConfigFlags(CLI::App& command)
    : launched_(config::launched_config(base::LauncherEnvironment::of_process())) {
  auto* config = command
                     .add_option("--config,--config-file", config_,
                                 "Accelerate YAML or DeepSpeed JSON, told apart by content")
                     ->group(kGroup);
  auto* deepspeed =
      command
          .add_option("--deepspeed", deepspeed_, "a DeepSpeed JSON, or its text, also in base64")
          ->group(kGroup);
  auto* fsdp = command
                   .add_option("--fsdp", fsdp_,
                               "the Trainer's words: \"full_shard auto_wrap\", with offload")
                   ->group(kGroup);
  auto* fsdp_config =
      command
          .add_option("--fsdp-config", fsdp_config_, "the Trainer's fsdp_config JSON, or its text")
          ->group(kGroup);
  config->excludes(deepspeed, fsdp, fsdp_config);
  deepspeed->excludes(fsdp, fsdp_config);
  command.add_option("--set", overrides_, "key=value in place of the file's; may be repeated")
      ->expected(1)
      ->take_all()
      ->group(kGroup);
  add_unknown_keys(command, allow_unknown_)->group(kGroup);
  command.add_flag("--allow-unknown", allow_unknown_, "the same as --unknown-keys warn")
      ->group(kGroup);
}

std::string ConfigFlags::named_file() const {
  if (!config_.empty()) return config_;
  if (!deepspeed_.empty()) return deepspeed_;
  if (!fsdp_.empty() || !fsdp_config_.empty()) return "";
  return launched_.file;
}

config::LaunchedConfig ConfigFlags::words() const {
  if (!fsdp_.empty() || !fsdp_config_.empty()) return {.fsdp = fsdp_, .fsdp_config = fsdp_config_};
  return launched_;
}

config::LaunchedConfig ConfigFlags::for_ranks() const {
  config::LaunchedConfig all = words();
  all.file = absolute_place(file());
  all.fsdp_config = absolute_place(all.fsdp_config);
  all.overrides = config::overrides_of(launched_.overrides, overrides_);
  all.allow_unknown = launched_.allow_unknown || allow_unknown_;
  return all;
}

std::string ConfigFlags::file() const {
  const std::string named = named_file();
  if (!named.empty() || words().has_words()) return named;
  const std::string fallback = config::default_config_path();
  if (base::is_file(fallback)) return fallback;
  // What `accelerate launch` passed to this process takes precedence over Accelerate's default
  // file.
  return config::is_from_accelerate() ? "" : config::accelerate_default_config();
}

bool ConfigFlags::is_named() const { return !named_file().empty() || words().has_words(); }

Plan ConfigFlags::load(PlanOptions options, bool is_quiet) const {
  options.allow_unknown = options.allow_unknown || allow_unknown_ || launched_.allow_unknown;
  const std::vector<std::string> overrides = config::overrides_of(launched_.overrides, overrides_);
  options.overrides.insert(options.overrides.end(), overrides.begin(), overrides.end());
  const std::string path = file();
  if (!path.empty()) {
    if (!is_named() && !is_quiet) {
      const bool is_own = path == config::default_config_path();
      base::say(fmt::format("note: using {}, which `{} config` wrote\n", path,
                            is_own ? "fullshard" : "accelerate"));
    }
    return Plan::load(path, options);
  }
  return Plan::from_words(words().fsdp, words().fsdp_config, options);
}

}  // namespace fullshard::cli
