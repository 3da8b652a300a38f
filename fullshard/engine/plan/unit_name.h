// SPDX-License-Identifier: Apache-2.0
// How messages call a unit.
#pragma once

#include <fmt/format.h>

#include <string>

namespace fullshard::engine {

// "unit 'blocks.3'", or "the root unit" for the empty path.
inline std::string describe_unit(const std::string& path) {
  return path.empty() ? "the root unit" : fmt::format("unit '{}'", path);
}

}  // namespace fullshard::engine
