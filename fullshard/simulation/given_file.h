// SPDX-License-Identifier: Apache-2.0
// Files that a flag names.
#pragma once

#include <optional>
#include <string>

namespace fullshard::simulation {

// Nothing when there is none; an Error of kind usage, with the flag, when it cannot be read.
std::optional<std::string> read_given_file(const std::string& path, const std::string& flag);

}  // namespace fullshard::simulation
