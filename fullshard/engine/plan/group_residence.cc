// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/group_residence.h"

namespace fullshard::engine {
namespace {

// Whose states come later: those of AdamW, in fp32.
constexpr int64_t kLikelyStateBytes = 8;

int64_t master_bytes(const GroupSpec& spec) {
  if (spec.master_dtype == spec.compute_dtype) return 0;
  const bool in_halves = spec.in_halves && spec.compute_dtype == at::kBFloat16;
  return in_halves ? 2 : element_bytes(spec.master_dtype);
}

// ZeRO's; of FSDP's strategies each may offload everything.
int stage_of(const ShardingOptions& options) { return options.zero_stage.value_or(3); }

}  // namespace

tiers::GroupSize size_of(const GroupSpec& spec, int num_shards) {
  tiers::GroupSize size{.name = spec.unit,
                        .numel = layout_of(spec, num_shards).shard_numel(),
                        .parameter_bytes = element_bytes(spec.compute_dtype),
                        .keeps_parameters = spec.is_persistent};
  if (!spec.trainable) return size;
  size.gradient_bytes = element_bytes(spec.gradient_dtype);
  size.master_bytes = master_bytes(spec);
  size.optimizer_bytes = kLikelyStateBytes;
  return size;
}

tiers::Residence place_groups(const ShardOptions& options, int num_shards, at::Device device,
                              std::vector<std::vector<GroupSpec>>& units) {
  std::vector<tiers::GroupSize> sizes;
  for (const auto& unit : units) {
    for (const auto& spec : unit) sizes.push_back(size_of(spec, num_shards));
  }
  const bool is_cpu = device.is_cpu() && !options.offload.streams_on_cpu;
  auto residence =
      tiers::residence_of(options.offload, stage_of(options.sharding), sizes,
                          {.device_bytes = options.offload.resident_bytes, .is_cpu = is_cpu});
  size_t next = 0;
  for (auto& unit : units) {
    for (auto& spec : unit) spec.residence = residence.groups[next++];
  }
  return residence;
}

}  // namespace fullshard::engine
