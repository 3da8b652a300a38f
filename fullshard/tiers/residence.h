// SPDX-License-Identifier: Apache-2.0
// Where the bytes of a sharded model rest: for every group of parameters and every purpose, on
// which tier. Pure data and one function, as sharding.h is for stages; no other file branches on
// offload options.
#pragma once

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
  int64_t numel = 0;              // of this rank's shard
  int64_t parameter_bytes = 0;    // per element, as computed with: 2 for bf16
  int64_t gradient_bytes = 0;     // per element; 0: frozen
  int64_t master_bytes = 0;       // beside the parameter: 2 for a lower half, 4 for a whole master
  int64_t optimizer_bytes = 0;    // of all states together: 8 for AdamW's two in fp32
  bool keeps_parameters = false;  // never released: they stay on the device
};

// A group goes as a whole, so that each of its arrays lies in one piece.
struct GroupResidence {
  Tier parameters = Tier::device;
  Tier gradients = Tier::device;
  Tier states = Tier::device;      // masters and optimizer states, which are updated together
  Tier stepped_on = Tier::device;  // who updates them: the device, or the host where they rest

  Tier of(Purpose purpose) const;
  bool operator==(const GroupResidence&) const = default;
};

struct Residence {
  std::vector<GroupResidence> groups{};  // as the sizes were given
  std::vector<std::string> notes{};      // for the user

  bool uses(Tier tier) const;
  // Of one rank, at rest. `sizes` as given to residence_of().
  int64_t bytes(std::span<const GroupSize> sizes, Purpose purpose, Tier tier) const;
};

struct ResidenceBudget {
  // Device memory left for masters and states that would otherwise be offloaded.
  std::optional<int64_t> device_bytes{};
  bool is_cpu = false;  // the device is the host: nothing moves between these two
};

// Throws an Error (kind usage) with the first of offload_problems().
Residence residence_of(const TierOptions& options, int stage, std::span<const GroupSize> groups,
                       const ResidenceBudget& budget = {});

}  // namespace fullshard::tiers
