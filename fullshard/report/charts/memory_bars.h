// SPDX-License-Identifier: Apache-2.0
// What each rank holds, by purpose, compared with one rank without sharding.
#pragma once

#include <string>

#include "fullshard/report/records/run_record.h"

namespace fullshard::report {

// If there are more than eight ranks: the one with the most and the one with the least. `note` is a
// line below the bars.
std::string memory_bars_html(const MemoryPlan& plan, int world, const std::string& note);

}  // namespace fullshard::report
