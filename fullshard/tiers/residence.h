// SPDX-License-Identifier: Apache-2.0
// Where the bytes of a sharded model rest: for every group of parameters and every purpose, how
// many elements lie on which tier. Pure data and one function, as sharding.h is for stages; no
// other file branches on offload options.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fullshard/tiers/tier.h"
#include "fullshard/tiers/tier_options.h"

namespace fullshard::tiers {

// A rank's shard of a group of parameters. Groups stand in the order in which forward first needs
// their units.
struct GroupSize {
  std::string name{};
  int64_t numel = 0;            // of this rank's shard
  int64_t parameter_bytes = 0;  // per element, as computed with: 2 for bf16
  int64_t gradient_bytes = 0;   // per element; 0: frozen
  int64_t master_bytes = 0;     // beside the parameter: 2 for a lower half, 4 for a whole master
  int64_t optimizer_bytes = 0;  // of all states together: 8 for AdamW's two in fp32
};

// The elements of a shard, in order: the first ones on the device, then host memory, then the disk.
struct Spread {
  std::array<int64_t, kNumTiers> numel{};

  int64_t on(Tier tier) const { return numel[static_cast<size_t>(tier)]; }
  int64_t total() const { return numel[0] + numel[1] + numel[2]; }
  bool operator==(const Spread&) const = default;
};

struct GroupResidence {
  Spread parameters{};
  Spread gradients{};
  Spread states{};  // masters and optimizer states, which are updated together

  const Spread& of(Purpose purpose) const;
  bool operator==(const GroupResidence&) const = default;
};

struct Residence {
  std::vector<GroupResidence> groups{};  // as the sizes were given
  bool steps_on_host = false;            // FSDP's offload_params
  std::vector<std::string> notes{};      // for the user

  // Of one rank, at rest. `sizes` as given to residence_of().
  int64_t bytes(std::span<const GroupSize> sizes, Purpose purpose, Tier tier) const;
};

struct ResidenceBudget {
  // Device memory left for masters and states that would otherwise be offloaded.
  std::optional<int64_t> device_bytes{};
  bool is_cpu = false;  // the device is the host: nothing moves between these two
};

// Where a group is cut between two tiers, in elements: 4 KiB of the smallest dtype of a state.
inline constexpr int64_t kResidenceStep = 4096;

// Throws an Error (kind usage) with the first of offload_problems().
Residence residence_of(const TierOptions& options, int stage, std::span<const GroupSize> groups,
                       const ResidenceBudget& budget = {});

}  // namespace fullshard::tiers
