// SPDX-License-Identifier: Apache-2.0
// The largest sizes that a config.json may name: far beyond any model that was ever trained, and
// small enough that no product of them overflows and that building the modules takes seconds.
#pragma once

#include <cstdint>

namespace fullshard::models {

constexpr int64_t kMostLayers = 10'000;
constexpr int64_t kMostWidth = int64_t{1} << 22;      // of hidden states, also inside a layer
constexpr int64_t kMostRows = int64_t{1} << 28;       // of a table: tokens, positions, types
constexpr int64_t kMostPositions = int64_t{1} << 40;  // where no table is made of them

}  // namespace fullshard::models
