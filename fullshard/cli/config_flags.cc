#include "fullshard/cli/config_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "fullshard/base/file_kind.h"
#include "fullshard/config/questionnaire.h"

namespace fullshard {
namespace {

constexpr const char* kGroup = "Configuration";

}  // namespace

ConfigFlags::ConfigFlags(CLI::App& command) {
  auto* config = command
                     .add_option("--config,--config-file", config_,
                                 "Accelerate YAML or DeepSpeed JSON, told apart by content")
                     ->group(kGroup);
  auto* deepspeed =
      command.add_option("--deepspeed", deepspeed_, "a DeepSpeed JSON, or its text in base64")
          ->group(kGroup);
  auto* fsdp = command
                   .add_option("--fsdp", fsdp_,
                               "the Trainer's words: \"full_shard auto_wrap\", with offload")
                   ->group(kGroup);
  auto* fsdp_config =
      command.add_option("--fsdp-config", fsdp_config_, "the Trainer's fsdp_config JSON")
          ->group(kGroup);
  config->excludes(deepspeed, fsdp, fsdp_config);
  deepspeed->excludes(fsdp, fsdp_config);
  command.add_option("--set", overrides_, "key=value in place of the file's; may be repeated")
      ->expected(1)
      ->take_all()
      ->group(kGroup);
  command.add_flag("--allow-unknown", allow_unknown_, "only warn of unknown keys")->group(kGroup);
}

std::string ConfigFlags::named_file() const {
  if (!config_.empty()) return config_;
  if (!deepspeed_.empty()) return deepspeed_;
  if (!fsdp_.empty() || !fsdp_config_.empty()) return "";
  const char* variable = std::getenv("FULLSHARD_CONFIG");
  return variable != nullptr ? variable : "";
}

std::string ConfigFlags::file() const {
  const std::string named = named_file();
  if (!named.empty() || !fsdp_.empty() || !fsdp_config_.empty()) return named;
  const std::string fallback = default_config_path();
  return is_file(fallback) ? fallback : "";
}

bool ConfigFlags::is_named() const {
  return !named_file().empty() || !fsdp_.empty() || !fsdp_config_.empty();
}

Plan ConfigFlags::load(PlanOptions options, bool is_quiet) const {
  options.allow_unknown = options.allow_unknown || allow_unknown_;
  options.overrides.insert(options.overrides.end(), overrides_.begin(), overrides_.end());
  const std::string path = file();
  if (!path.empty()) {
    if (!is_named() && !is_quiet) {
      fmt::print(stderr, "note: using {}, which `fullshard config` wrote\n", path);
    }
    return Plan::load(path, options);
  }
  return Plan::from_words(fsdp_, fsdp_config_, options);
}

}  // namespace fullshard
