// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "fullshard/config/plan_maker.h"
#include "fullshard/config/schema/value_check.h"

namespace fullshard::config {
namespace {

// What `accelerate launch` exports, defaults included.
constexpr std::array kVariables = {
    AccelerateVariable{"FSDP_VERSION", "fsdp_config.fsdp_version"},
    AccelerateVariable{"FSDP_SHARDING_STRATEGY", "fsdp_config.fsdp_sharding_strategy"},
    AccelerateVariable{"FSDP_RESHARD_AFTER_FORWARD", "fsdp_config.fsdp_reshard_after_forward"},
    AccelerateVariable{"FSDP_OFFLOAD_PARAMS", "fsdp_config.fsdp_offload_params"},
    AccelerateVariable{"FSDP_AUTO_WRAP_POLICY", "fsdp_config.fsdp_auto_wrap_policy"},
    AccelerateVariable{"FSDP_TRANSFORMER_CLS_TO_WRAP",
                       "fsdp_config.fsdp_transformer_layer_cls_to_wrap"},
    AccelerateVariable{"FSDP_MIN_NUM_PARAMS", "fsdp_config.fsdp_min_num_params"},
    AccelerateVariable{"FSDP_BACKWARD_PREFETCH", "fsdp_config.fsdp_backward_prefetch"},
    AccelerateVariable{"FSDP_FORWARD_PREFETCH", "fsdp_config.fsdp_forward_prefetch"},
    AccelerateVariable{"FSDP_STATE_DICT_TYPE", "fsdp_config.fsdp_state_dict_type"},
    AccelerateVariable{"FSDP_USE_ORIG_PARAMS", "fsdp_config.fsdp_use_orig_params"},
    AccelerateVariable{"FSDP_CPU_RAM_EFFICIENT_LOADING",
                       "fsdp_config.fsdp_cpu_ram_efficient_loading"},
    AccelerateVariable{"FSDP_SYNC_MODULE_STATES", "fsdp_config.fsdp_sync_module_states"},
    AccelerateVariable{"FSDP_ACTIVATION_CHECKPOINTING",
                       "fsdp_config.fsdp_activation_checkpointing"},
    AccelerateVariable{"FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD",
                       "fsdp_config.fsdp_activation_checkpointing_offload"},
    AccelerateVariable{"FSDP_IGNORED_MODULES", "fsdp_config.fsdp_ignored_modules"},
    AccelerateVariable{"ACCELERATE_MIXED_PRECISION", "mixed_precision"},
    AccelerateVariable{"ACCELERATE_USE_CPU", "use_cpu"},
    AccelerateVariable{"ACCELERATE_DEEPSPEED_CONFIG_FILE",
                       "deepspeed_config.deepspeed_config_file"},
    AccelerateVariable{"ACCELERATE_DEEPSPEED_ZERO_STAGE", "deepspeed_config.zero_stage"},
    AccelerateVariable{"ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
                       "deepspeed_config.offload_optimizer_device"},
    AccelerateVariable{"ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
                       "deepspeed_config.offload_param_device"},
    AccelerateVariable{"ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH",
                       "deepspeed_config.offload_optimizer_nvme_path"},
    AccelerateVariable{"ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH",
                       "deepspeed_config.offload_param_nvme_path"},
    AccelerateVariable{"ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
                       "deepspeed_config.gradient_accumulation_steps"},
    AccelerateVariable{"ACCELERATE_GRADIENT_CLIPPING", "deepspeed_config.gradient_clipping"},
    AccelerateVariable{"ACCELERATE_DEEPSPEED_ZERO3_INIT", "deepspeed_config.zero3_init_flag"},
    AccelerateVariable{"ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
                       "deepspeed_config.zero3_save_16bit_model"},
};

constexpr const char* kPrecision = "ACCELERATE_MIXED_PRECISION";

bool is_on(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && plain_name(value) == "true";
}

// nullopt where the launcher exported a variable without a value.
std::optional<std::string> value_of(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0' || std::string_view(value) == "none") return std::nullopt;
  return value;
}

}  // namespace

std::span<const AccelerateVariable> accelerate_variables() { return kVariables; }

bool is_sharded_by_accelerate() {
  return is_on("ACCELERATE_USE_FSDP") || is_on("ACCELERATE_USE_DEEPSPEED");
}

bool is_from_accelerate() { return is_sharded_by_accelerate() || value_of(kPrecision); }

// The launcher exports it for every kind of run; without FSDP and DeepSpeed only this variable
// counts.
void PlanMaker::put_launched_precision(Settings& settings) {
  const auto value = value_of(kPrecision);
  if (!value) return;
  const Origin origin{.from = Origin::From::environment, .note = kPrecision};
  if (settings.family() == Family::accelerate) {
    return settings.override_with("mixed_precision", *value, origin, problems_);
  }
  const auto name = accelerate_choice("mixed_precision", *value);
  if (!name) {
    problems_.errors.push_back(
        {.file = kPrecision,
         .message = fmt::format("is '{}', expected no, fp16, bf16 or fp8", *value)});
  } else if (*name != "no") {
    if (*name == "fp8") launched_fp8_ = origin;
    settings.override_with(*name == "fp16" ? "fp16.enabled" : "bf16.enabled", "true", origin,
                           problems_);
  }
}

Plan PlanMaker::make_unsharded_by_accelerate() {
  Settings settings(Family::deepspeed);
  put_launched_precision(settings);
  if (!options_.overrides.empty() || !options_.flags.empty()) return make_from(std::move(settings));
  Plan plan;
  plan.precision.fp16 = settings.get<bool>("fp16.enabled");
  plan.precision.bf16 = settings.get<bool>("bf16.enabled");
  apply_launched_fp8(plan);
  return plan;
}

// fp8 is bf16 with the products of blocks in 8 bits; DeepSpeed has no key for it.
void PlanMaker::apply_launched_fp8(Plan& plan) const {
  const Setting<bool>& bf16 = plan.precision.bf16;
  if (launched_fp8_ && bf16.origin.note == launched_fp8_->note) plan.precision.fp8 = bf16;
}

Plan PlanMaker::make_from_environment() {
  const bool is_fsdp = is_on("ACCELERATE_USE_FSDP");
  const bool is_deepspeed = is_on("ACCELERATE_USE_DEEPSPEED");
  if (!is_fsdp && !is_deepspeed) return make_unsharded_by_accelerate();
  Settings settings(Family::accelerate);
  settings.put("distributed_type", ConfigNode::of_text(is_fsdp ? "FSDP" : "DEEPSPEED"),
               {.from = Origin::From::environment,
                .key = "distributed_type",
                .note = is_fsdp ? "ACCELERATE_USE_FSDP" : "ACCELERATE_USE_DEEPSPEED"});
  const char* version = std::getenv("FSDP_VERSION");
  const bool is_second = version != nullptr && std::string_view(version) == "2";
  for (const AccelerateVariable& variable : kVariables) {
    const auto value = value_of(variable.name);
    if (!value) continue;
    // The launcher exports the defaults of both versions; only one of the two keys applies.
    if (variable.path == (is_second ? "fsdp_config.fsdp_sharding_strategy"
                                    : "fsdp_config.fsdp_reshard_after_forward")) {
      continue;
    }
    if (!is_fsdp && variable.path.starts_with("fsdp_config.")) continue;
    if (!is_deepspeed && variable.path.starts_with("deepspeed_config.")) continue;
    settings.override_with(variable.path, *value,
                           {.from = Origin::From::environment, .note = variable.name}, problems_);
  }
  return make_from(std::move(settings));
}

}  // namespace fullshard::config
