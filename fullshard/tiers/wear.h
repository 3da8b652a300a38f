// SPDX-License-Identifier: Apache-2.0
// How fast a disk is worn out by what a run writes to it.
#pragma once

#include <cstdint>
#include <string>

namespace fullshard::tiers {

// 0 when the step took no time.
double bytes_written_per_day(int64_t bytes_per_step, double step_seconds);

// "12.1 TB a day are written to '/nvme'; a disk that endures 1200 TB is worn out in 99 days". The
// endurance of a disk stands on its data sheet as TBW; 0 leaves it out.
std::string wear_note(const std::string& folder, double bytes_per_day, double endurance_tb = 0);

}  // namespace fullshard::tiers
