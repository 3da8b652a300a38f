// SPDX-License-Identifier: Apache-2.0
// "Did you mean …?"
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fullshard::base {

// The candidate that is a few letters away from the word; nothing when none is near.
std::optional<std::string> closest(std::string_view word, std::span<const std::string> candidates);

}  // namespace fullshard::base
