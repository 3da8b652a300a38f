// SPDX-License-Identifier: Apache-2.0
// Reads pickles of protocols 2 to 5 as data: the opcodes that Python's own pickler and torch.save
// write. It calls nothing, imports nothing, and does not recurse.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fullshard/formats/pickle/pickle_value.h"

namespace fullshard::formats {

struct PickleLimits {
  int64_t max_bytes = int64_t{256} << 20;
  int64_t max_values = 4'000'000;  // under 200 bytes each
  int64_t max_stack = 4'000'000;
};

// Errors (kind input) begin with `where` and name the byte.
Pickle read_pickle(std::string_view bytes, const std::string& where,
                   const PickleLimits& limits = {});

}  // namespace fullshard::formats
