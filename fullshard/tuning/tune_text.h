// SPDX-License-Identifier: Apache-2.0
// Rungs as lines of a table, and the choice in one sentence.
#pragma once

#include <optional>
#include <string>

#include "fullshard/tuning/climb.h"

namespace fullshard::tuning {

// These end with a line break.
std::string table_head();
std::string table_line(const RungResult& result);

// "chosen: ZeRO-2, batch 8: 12.3 K tokens/s, the fastest of 5 that were measured and fit; …".
std::string choice_text(const Climbed& climbed);

// Why nothing fits, with the changes of the most frugal rung that was planned; for an Error of kind
// no_fit. If rungs failed for another reason than memory, it names the first of those.
std::string nothing_fits_text(const Climbed& climbed);

}  // namespace fullshard::tuning
