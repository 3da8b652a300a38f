// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/accelerate_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/cli/flags/value_checks.h"
#include "fullshard/config/plan_maker.h"
#include "fullshard/config/schema/schema.h"
#include "fullshard/config/schema/value_check.h"

namespace fullshard::cli {
namespace {

constexpr const char* kAsAccelerate = "As accelerate launch";

std::string flag_of_key(std::string_view key) {
  std::string name = fmt::format("--{}", key);
  std::ranges::replace(name, '_', '-');
  return name;
}

}  // namespace

AccelerateFlags::AccelerateFlags(CLI::App& command) {
  add_settings(command);
  add_launch(command);
  add_without_effect(command);
  add_refused(command);
}

// Each flag is named after its key.
void AccelerateFlags::add_settings(CLI::App& command) {
  command.add_flag("--use-fsdp", use_fsdp_, "shard as FSDP does")->group(kAsAccelerate);
  command.add_flag("--use-deepspeed", use_deepspeed_, "shard as DeepSpeed does")
      ->group(kAsAccelerate);
  for (const config::AccelerateVariable& variable : config::accelerate_variables()) {
    const std::string key(variable.path.substr(variable.path.rfind('.') + 1));
    if (key == "use_cpu") continue;  // a flag without a value
    Value& value = values_.emplace_back(
        Value{"--" + key, std::string(variable.path), std::string(variable.name)});
    std::string names = flag_of_key(key);
    if (key == "fsdp_backward_prefetch") names += ",--fsdp-backward-prefetch-policy";
    const auto rows = config::Schema::of(config::Family::accelerate).find(variable.path);
    value.option = command.add_option(names, value.text, std::string(rows.front()->meaning))
                       ->type_name("")
                       ->group(kAsAccelerate);
  }
}

void AccelerateFlags::add_launch(CLI::App& command) {
  const auto add = [&](const char* name, auto& setting, const char* help) {
    command
        .add_option_function<std::string>(
            name, [&setting](const std::string& text) { setting.value = text; }, help)
        ->type_name("")
        ->group(kAsAccelerate);
  };
  add("--gpu-ids", launch_.gpu_ids, "which GPUs of this host: all, or numbers as in 0,1");
  add("--deepspeed-hostfile", launch_.hostfile, "the same as --hostfile");
  add("--deepspeed-inclusion-filter", launch_.include, "the same as --include");
  add("--deepspeed-exclusion-filter", launch_.exclude, "the same as --exclude");
  command.add_flag("--enable-cpu-affinity", launch_.bind_cores.value, "the same as --bind cores")
      ->group(kAsAccelerate);
  command.add_flag("--use-cpu,--cpu", use_cpu_, "compute on the CPU")->group(kAsAccelerate);
  command.add_option("--num-cpu-threads-per-process", threads_, "OMP_NUM_THREADS of the ranks")
      ->check(within(1, 1 << 16))
      ->type_name("")
      ->group(kAsAccelerate);
}

// Flags that ask for what is always the case here.
void AccelerateFlags::add_without_effect(CLI::App& command) {
  const auto ignored = [](const std::string&) {};
  for (const char* name : {"--multi-gpu", "--no-python", "--same-network", "--debug"}) {
    command.add_flag_callback(name, [] {})->group("");
  }
  for (const char* name : {"--rdzv-backend", "--rdzv-conf", "--main-training-function", "--role",
                           "--monitor-interval"}) {
    command.add_option_function<std::string>(name, ignored)->group("");
  }
}

void AccelerateFlags::add_refused(CLI::App& command) {
  const auto add = [&](const char* typed, const char* advice, bool has_value = false) {
    const std::string name = flag_of_key(std::string_view(typed).substr(2));
    CLI::Option* option =
        has_value ? command.add_option_function<std::string>(name, [](const std::string&) {})
                  : command.add_flag_callback(name, [] {});
    refused_.push_back({typed, advice, option->group("")});
  };
  add("--module", "write fullshard launch … -- python -m MODULE");
  add("--tpu", "ranks compute on GPUs or CPUs");
  add("--use_xpu", "ranks compute on GPUs or CPUs");
  add("--use_mps_device", "ranks compute on GPUs or CPUs");
  add("--ipex", "ranks compute on GPUs or CPUs");
  add("--use_megatron_lm", "use --use_fsdp; there is no tensor or pipeline parallelism");
  add("--use_parallelism_config",
      "write parallelism_config to a file, and name it with --config_file");
  add("--dynamo_backend", "there is no graph compiler; leave it out", true);
  add("--deepspeed_multinode_launcher", "hosts of a --hostfile are reached over ssh; leave it out",
      true);
}

void AccelerateFlags::check() const {
  for (const Refused& flag : refused_) {
    if (flag.option->count() == 0) continue;
    fail_as(ErrorKind::usage, "launch: {}: is not supported; {}", flag.typed, flag.advice);
  }
  if (use_fsdp_ && use_deepspeed_) {
    fail_as(ErrorKind::usage,
            "launch: --use_fsdp: given together with --use_deepspeed; keep one "
            "of them");
  }
  const config::Schema& schema = config::Schema::of(config::Family::accelerate);
  for (const Value& value : values_) {
    if (value.option->count() == 0) continue;
    const auto rows = schema.find(value.path);
    const auto node = config::ConfigNode::of_plain(value.text, true);
    config::CheckedValue checked;
    for (const config::SchemaKey* row : rows) {  // one row per version of FSDP
      config::ValueType type = row->type;
      type.is_loose = true;
      checked = config::check_value(node, type, false);
      if (checked.value) break;
    }
    if (!checked.value) fail_as(ErrorKind::usage, "launch: {}: {}", value.typed, checked.message);
  }
}

bool AccelerateFlags::says_any_of(const std::string& section) const {
  return std::ranges::any_of(values_, [&](const Value& value) {
    return value.option->count() > 0 && value.path.starts_with(section);
  });
}

bool AccelerateFlags::is_deepspeed() const {
  return use_deepspeed_ || (!use_fsdp_ && says_any_of("deepspeed_config."));
}

bool AccelerateFlags::shards() const {
  return use_fsdp_ || (!is_deepspeed() && says_any_of("fsdp_config."));
}

bool AccelerateFlags::has_settings() const {
  return use_fsdp_ || use_deepspeed_ || use_cpu_ || says_any_of("");
}

std::string AccelerateFlags::first_setting() const {
  for (const Value& value : values_) {
    if (value.option->count() > 0) return value.typed;
  }
  return use_fsdp_ ? "--use_fsdp" : use_deepspeed_ ? "--use_deepspeed" : "--use_cpu";
}

std::string AccelerateFlags::text_of(std::string_view typed) const {
  for (const Value& value : values_) {
    if (value.typed == typed && value.option->count() > 0) return value.text;
  }
  return "";
}

// Accelerate exports the keys of both versions and reads those of one.
void AccelerateFlags::check_version() const {
  const bool is_second = text_of("--fsdp_version") == "2";
  constexpr std::string_view kFirst = "--fsdp_sharding_strategy";
  constexpr std::string_view kSecond = "--fsdp_reshard_after_forward";
  if (!text_of(is_second ? kFirst : kSecond).empty()) {
    fail_as(ErrorKind::usage, "launch: {}: is a setting of version {}; {}",
            is_second ? kFirst : kSecond, is_second ? 1 : 2,
            is_second ? fmt::format("use {}", kSecond) : "add --fsdp_version 2");
  }
}

std::vector<std::string> AccelerateFlags::variables_of_launch() const {
  if (threads_.empty()) return {};
  return {"OMP_NUM_THREADS=" + threads_};
}

std::vector<std::string> AccelerateFlags::overrides() const {
  std::vector<std::string> texts;
  if (use_fsdp_) texts.emplace_back("distributed_type=FSDP");
  if (use_deepspeed_) texts.emplace_back("distributed_type=DEEPSPEED");
  if (use_cpu_) texts.emplace_back("use_cpu=true");
  for (const Value& value : values_) {
    if (value.option->count() > 0) texts.push_back(fmt::format("{}={}", value.path, value.text));
  }
  return texts;
}

std::vector<std::string> AccelerateFlags::variables() const {
  check_version();
  std::vector<std::string> texts;
  if (shards()) texts.emplace_back("ACCELERATE_USE_FSDP=true");
  if (is_deepspeed()) texts.emplace_back("ACCELERATE_USE_DEEPSPEED=true");
  if (use_cpu_) texts.emplace_back("ACCELERATE_USE_CPU=true");
  for (const Value& value : values_) {
    if (value.option->count() > 0)
      texts.push_back(fmt::format("{}={}", value.variable, value.text));
  }
  return texts;
}

}  // namespace fullshard::cli
