// SPDX-License-Identifier: Apache-2.0
// Ranges of optimizer settings; every message names the optimizer, the setting and its range.
#pragma once

#include <cmath>
#include <string_view>

#include "fullshard/base/error.h"

namespace fullshard::optim {

inline void check_at_least_zero(std::string_view optimizer, std::string_view key, double value) {
  check(value >= 0 && std::isfinite(value), "{}: {} is {}, expected at least 0", optimizer, key,
        value);
}

inline void check_below_one(std::string_view optimizer, std::string_view key, double value) {
  check(value >= 0 && value < 1, "{}: {} is {}, expected 0 <= {} < 1", optimizer, key, value, key);
}

}  // namespace fullshard::optim
