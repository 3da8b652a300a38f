// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/memory_effect.h"

#include <fmt/format.h>

#include <array>

namespace fullshard::config {
namespace {

// Bytes per parameter: the value in computation, the gradient, master and moments.
struct BytesPerParameter {
  double compute;
  double gradient;
  double states;
};

BytesPerParameter bytes_of(const PrecisionPlan& precision) {
  const bool is_16bit = precision.fp16.value || precision.bf16.value || precision.amp.value;
  if (!is_16bit) return {4, 4, 8};  // the master is the parameter
  const bool has_16bit_masters = precision.fp16_master_weights_and_grads.value ||
                                 precision.bf16_master_weights_and_grads.value;
  if (!has_16bit_masters) return {2, 4, 12};
  return {2, 2, precision.bf16_optimizer_states.value ? 6.0 : 10.0};
}

// On GPUs the sixteen bits that a bf16 value shares with its fp32 master are stored once
// (engine/storage/master_halves).
double shared_on_gpus(const PrecisionPlan& precision) {
  return precision.bf16.value && !precision.bf16_master_weights_and_grads.value ? 2 : 0;
}

// Which of gradients, states and parameters are sharded.
struct Cut {
  bool parameters;
  bool gradients;
  bool states;
};

Cut cut_of(const ShardingPlan& sharding) {
  if (sharding.stage.value) {
    const int64_t stage = *sharding.stage.value;
    return {stage >= 3, stage >= 2, stage >= 1};
  }
  if (sharding.strategy.value == "NO_SHARD") return {false, false, false};
  return {true, true, true};  // at rest; SHARD_GRAD_OP keeps parameters whole only inside a step
}

std::string model_states(const Plan& plan, int64_t ranks) {
  const BytesPerParameter bytes = bytes_of(plan.precision);
  const Cut cut = cut_of(plan.sharding);
  const double n = static_cast<double>(plan.sharding.factor.value.value_or(ranks));
  const auto share = [&](double all, bool is_cut) { return is_cut ? all / n : all; };
  const double total = share(bytes.compute, cut.parameters) + share(bytes.gradient, cut.gradients) +
                       share(bytes.states, cut.states);
  const double unsharded = bytes.compute + bytes.gradient + bytes.states;
  std::string text = fmt::format(
      "{:.3g} bytes per parameter and rank on {} ranks, {:.3g} unsharded", total, ranks, unsharded);
  if (const double less = shared_on_gpus(plan.precision); less > 0) {
    text +=
        fmt::format(" (on GPUs {:.3g} and {:.3g}: bf16 values and fp32 masters share two bytes)",
                    total - share(less, cut.states), unsharded - less);
  }
  return text;
}

}  // namespace

std::string format_decimal_bytes(double bytes) {
  static constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  return fmt::format("{:.4g} {}", bytes, kUnits[unit]);
}

std::string memory_effect(const Plan& plan, std::string_view key, int64_t ranks) {
  const ShardingPlan& sharding = plan.sharding;
  const double width = bytes_of(plan.precision).compute;
  const auto elements = [&](const Setting<int64_t>& size, std::string_view what) {
    if (size.value == 0) return std::string("no limit");
    return fmt::format("{} of {}", format_decimal_bytes(static_cast<double>(size.value) * width),
                       what);
  };
  const bool is_stage = key == "zero_optimization.stage" || key == "deepspeed_config.zero_stage";
  const bool is_strategy =
      key == "fsdp_config.fsdp_sharding_strategy" || key == "fsdp_config.reshard_after_forward";
  // Accelerate's files have both keys; one of them counts.
  if (sharding.stage.value ? is_stage : is_strategy) return model_states(plan, ranks);
  if (key == "zero_optimization.overlap_comm" && sharding.overlap_comm.value) {
    const double both = static_cast<double>(sharding.allgather_bucket_size.value) +
                        static_cast<double>(sharding.reduce_bucket_size.value);
    return fmt::format("up to {} for buckets in flight: 4.5 times both buckets of 2-byte elements",
                       format_decimal_bytes(4.5 * 2 * both));
  }
  if (key == "zero_optimization.reduce_bucket_size") {
    return elements(sharding.reduce_bucket_size, "gradients in one message");
  }
  if (key == "zero_optimization.allgather_bucket_size") {
    return elements(sharding.allgather_bucket_size, "parameters in one message");
  }
  if (key == "zero_optimization.stage3_prefetch_bucket_size") {
    return elements(sharding.prefetch_bucket_size, "parameters fetched ahead");
  }
  if (key == "zero_optimization.stage3_max_live_parameters") {
    return elements(sharding.max_live_parameters, "gathered parameters at most");
  }
  if (key == "zero_optimization.stage3_param_persistence_threshold") {
    return elements(sharding.param_persistence_threshold, "each parameter that stays, at most");
  }
  if (key == "zero_optimization.sub_group_size" && sharding.sub_group_size.value > 0) {
    std::string text =
        fmt::format("{} of optimizer states at once",
                    format_decimal_bytes(static_cast<double>(sharding.sub_group_size.value) *
                                         bytes_of(plan.precision).states));
    if (plan.offload.optimizer.device.value == "nvme") {
      text += "; make it smaller where a step runs out of memory, larger where the disk is slow";
    }
    return text;
  }
  return "";
}

}  // namespace fullshard::config
