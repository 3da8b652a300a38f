// SPDX-License-Identifier: Apache-2.0
// The bytes that a setting costs, as a phrase for `config explain`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fullshard/config/plan.h"

namespace fullshard::config {

// Empty for keys whose cost is negligible.
std::string memory_effect(const Plan& plan, std::string_view key, int64_t ranks);

// "9 GB", "50 MB": decimal units, as DeepSpeed's documents count.
std::string format_decimal_bytes(double bytes);

}  // namespace fullshard::config
