// SPDX-License-Identifier: Apache-2.0
// The bindings name every member: an option that is added and forgotten here does not compile.
#include "fullshard/engine/plan/option_texts.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <optional>
#include <type_traits>

namespace fullshard::engine {
namespace {

std::string value_text(at::ScalarType dtype) { return c10::toString(dtype); }
std::string value_text(Strategy strategy) { return std::string(name_of(strategy)); }
std::string value_text(tiers::Tier tier) { return std::string(tiers::name_of(tier)); }

std::string value_text(BackwardPrefetch prefetch) {
  if (prefetch == BackwardPrefetch::none) return "none";
  return prefetch == BackwardPrefetch::pre ? "pre" : "post";
}

std::string value_text(ProductPrecision products) {
  if (products == ProductPrecision::operands) return "operands";
  return products == ProductPrecision::fp8 ? "fp8" : "fp8_e4m3";
}

std::string value_text(tiers::Stepping stepping) {
  if (stepping == tiers::Stepping::automatic) return "automatic";
  return stepping == tiers::Stepping::device ? "device" : "host";
}

template <class Value>
requires std::is_arithmetic_v<Value> std::string value_text(Value value) {
  return fmt::format("{}", value);
}

template <class Value>
std::string value_text(const std::optional<Value>& value) {
  return value ? value_text(*value) : "not set";
}

class OptionTexts {
 public:
  explicit OptionTexts(const ShardOptions& options) {
    const auto& [sharding, wrap, ignored_modules, advises_on_units, schedule, traffic, param_dtype,
                 products, master_dtype, master_in_halves, reduce_dtype, gradient_dtype,
                 buffer_dtype, cast_forward_inputs, output_dtype, recompute, offload_activations,
                 offload_activations_min_bytes, offload, watch_non_finite, sync_module_states,
                 broadcast_buffers, share_host_copy, contiguous_gradients, round_robin_gradients,
                 sub_group_size, param_persistence_threshold] = options;
    add_sharding(sharding);
    texts_.push_back({"wrap", wrap.text()});
    texts_.push_back({"ignored_modules", fmt::format("'{}'", ignored_modules)});
    add("advises_on_units", advises_on_units);
    add_schedule(schedule);
    add_traffic(traffic);
    add("param_dtype", param_dtype);
    add("products", products);
    add("master_dtype", master_dtype);
    add("master_in_halves", master_in_halves);
    add("reduce_dtype", reduce_dtype);
    add("gradient_dtype", gradient_dtype);
    add("buffer_dtype", buffer_dtype);
    add("cast_forward_inputs", cast_forward_inputs);
    add("output_dtype", output_dtype);
    texts_.push_back({"recompute", recompute.text()});
    add("offload_activations", offload_activations);
    add("offload_activations_min_bytes", offload_activations_min_bytes);
    add_offload(offload);
    add("watch_non_finite", watch_non_finite);
    add("sync_module_states", sync_module_states);
    add("broadcast_buffers", broadcast_buffers);
    add("share_host_copy", share_host_copy);
    add("contiguous_gradients", contiguous_gradients);
    add("round_robin_gradients", round_robin_gradients);
    add("sub_group_size", sub_group_size);
    add("param_persistence_threshold", param_persistence_threshold);
  }

  std::vector<OptionText> take() && { return std::move(texts_); }

 private:
  template <class Value>
  void add(const char* name, const Value& value) {
    texts_.push_back({name, value_text(value)});
  }

  void add_sharding(const ShardingOptions& options) {
    const auto& [strategy, zero_stage, sharding_factor, reshard_after_forward] = options;
    add("sharding.strategy", strategy);
    add("sharding.zero_stage", zero_stage);
    add("sharding.sharding_factor", sharding_factor);
    add("sharding.reshard_after_forward", reshard_after_forward);
  }

  void add_schedule(const ScheduleOptions& options) {
    const auto& [reshard_after_forward, backward_prefetch, forward_prefetch, max_gathers_in_flight,
                 overlap_comm, repeats_forward, prefetch_bucket_size, max_live_parameters,
                 max_reuse_distance] = options;
    add("schedule.reshard_after_forward", reshard_after_forward);
    add("schedule.backward_prefetch", backward_prefetch);
    add("schedule.forward_prefetch", forward_prefetch);
    add("schedule.max_gathers_in_flight", max_gathers_in_flight);
    add("schedule.overlap_comm", overlap_comm);
    add("schedule.repeats_forward", repeats_forward);
    add("schedule.prefetch_bucket_size", prefetch_bucket_size);
    add("schedule.max_live_parameters", max_live_parameters);
    add("schedule.max_reuse_distance", max_reuse_distance);
  }

  void add_traffic(const TrafficOptions& options) {
    const auto& [reduce_scatter, allgather_partitions, allgather_bucket_size, reduce_bucket_size] =
        options;
    add("traffic.reduce_scatter", reduce_scatter);
    add("traffic.allgather_partitions", allgather_partitions);
    add("traffic.allgather_bucket_size", allgather_bucket_size);
    add("traffic.reduce_bucket_size", reduce_bucket_size);
  }

  void add_offload(const tiers::TierOptions& options) {
    const auto& [parameters, buffer_size, max_in_cpu, optimizer, ratio, resident_bytes,
                 pipeline_read, pipeline_write, fast_init, window_bytes, stepping, host_share,
                 everything, disk, streams_on_cpu, pin, make_transfers] = options;
    add_place("offload.parameters", parameters);
    add("offload.buffer_size", buffer_size);
    add("offload.max_in_cpu", max_in_cpu);
    add_place("offload.optimizer", optimizer);
    add("offload.ratio", ratio);
    add("offload.resident_bytes", resident_bytes);
    add("offload.pipeline_read", pipeline_read);
    add("offload.pipeline_write", pipeline_write);
    add("offload.fast_init", fast_init);
    add("offload.window_bytes", window_bytes);
    add("offload.stepping", stepping);
    add("offload.host_share", host_share);
    add("offload.everything", everything);
  }

  void add_place(const std::string& prefix, const tiers::OffloadPlace& place) {
    const auto& [tier, folder, pin_memory, buffer_count, reads_in_place] = place;
    texts_.push_back({prefix + ".tier", value_text(tier)});
    texts_.push_back({prefix + ".buffer_count", value_text(buffer_count)});
  }

  std::vector<OptionText> texts_;
};

}  // namespace

std::vector<OptionText> option_texts(const ShardOptions& options) {
  return OptionTexts(options).take();
}

}  // namespace fullshard::engine
