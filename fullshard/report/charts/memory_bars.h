// SPDX-License-Identifier: Apache-2.0
// What each rank holds, by purpose, beside what one rank would hold without sharding.
#pragma once

#include <string>

#include "fullshard/report/records/run_record.h"

namespace fullshard::report {

// Of more than eight ranks the one with the most and the one with the least. `note` is a line under
// the bars.
std::string memory_bars_html(const MemoryPlan& plan, int world, const std::string& note);

}  // namespace fullshard::report
