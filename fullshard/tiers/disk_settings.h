// SPDX-License-Identifier: Apache-2.0
// How a disk is driven: DeepSpeed's section `aio`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fullshard::tiers {

struct DiskSettings {
  int64_t block_size = 1 << 20;  // bytes of one request, a multiple of 4 KiB
  int64_t queue_depth = 8;       // requests that each thread keeps under way
  int64_t num_threads = 1;       // that share one read or write (intra_op_parallelism)
  bool single_submit = false;    // a call of the system for each request, not for several
  bool overlap_events = true;    // ask for more while others are under way, not after all ended

  bool operator==(const DiskSettings&) const = default;
};

// What is wrong with them: the name of the key in `aio`, and what was found and expected.
struct DiskSettingsProblem {
  std::string key{};
  std::string message{};
};
std::optional<DiskSettingsProblem> problem_of(const DiskSettings& settings);

// As a DeepSpeed configuration says them: {"aio": {…}}.
std::string aio_json(const DiskSettings& settings);

}  // namespace fullshard::tiers
