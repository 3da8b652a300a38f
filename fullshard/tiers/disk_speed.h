// SPDX-License-Identifier: Apache-2.0
// How fast a disk is under given settings, and which settings are best for it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fullshard/tiers/disk_settings.h"

namespace fullshard::tiers {

struct DiskSpeed {
  DiskSettings settings{};
  double read_bytes_per_second = 0;
  double write_bytes_per_second = 0;
  bool is_direct = true;  // past the page cache; otherwise the figures are partly memory's

  // What a step has to wait for: everything read once and written once.
  double seconds_per_byte() const;
};

struct DiskBench {
  std::string folder{};
  int64_t bytes = 0;  // of the file that is written and read; it is gone afterwards
  bool is_quick = false;
};

// Through the same file and threads as the disk tier.
DiskSpeed measure_disk(const DiskBench& bench, const DiskSettings& settings);

struct DiskSweep {
  std::vector<DiskSpeed> tried{};  // in the order in which they were tried
  size_t best = 0;
};

// One setting after another, each from its best value on: the number of tries is their sum and not
// their product. `measure` is measure_disk(), or a disk that a test plays; `tell` hears of each.
DiskSweep best_disk_settings(bool is_quick,
                             const std::function<DiskSpeed(const DiskSettings&)>& measure,
                             const std::function<void(const DiskSpeed&)>& tell = {});

// Warnings for a disk that is slower than an NVMe drive should be: 3.5 GB/s reading, 3 writing.
std::vector<std::string> slow_disk_warnings(const std::string& folder, const DiskSpeed& speed);

}  // namespace fullshard::tiers
