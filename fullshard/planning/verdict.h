// SPDX-License-Identifier: Apache-2.0
// Whether a plan fits, which byte decides, and what to change when it does not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/planning/estimate.h"

namespace fullshard::planning {

// Available bytes; absent: unknown, which is not a reason to refuse.
struct MemoryLimits {
  std::optional<int64_t> device_bytes{};  // of one rank's device
  std::optional<int64_t> host_bytes{};    // of a whole host
  int ranks_per_host = 1;
};

// The limits of this machine: for ranks on the CPU its memory, which the ranks of a host share.
MemoryLimits limits_here(at::Device device, int ranks_per_host);

struct FitVerdict {
  bool fits = true;
  std::string why{};                   // one line: the byte that decides
  std::vector<std::string> changes{};  // when it does not fit, the cheapest first
};

// `plan` tells which of the changes are already in effect.
FitVerdict judge(const Estimate& estimate, const Plan& plan, const MemoryLimits& limits);

// An Error of kind no_fit, with the changes, if it does not fit.
void check_fits(const Estimate& estimate, const Plan& plan, const MemoryLimits& limits);

}  // namespace fullshard::planning
