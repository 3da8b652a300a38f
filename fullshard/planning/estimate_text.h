// SPDX-License-Identifier: Apache-2.0
// An estimate as text and as JSON.
#pragma once

#include <string>

#include "fullshard/planning/verdict.h"

namespace fullshard::planning {

std::string estimate_text(const Estimate& estimate, const FitVerdict& verdict);
// {"fits", "ranks", "why", "device": {"rest_bytes", "peak_bytes", "peak_at", "by_purpose"}, …}
std::string estimate_json(const Estimate& estimate, const FitVerdict& verdict);

}  // namespace fullshard::planning
