// SPDX-License-Identifier: Apache-2.0
// Tokens for measuring a run that has no data yet.
#pragma once

#include <cstdint>
#include <string>

namespace fullshard::tuning {

// A token file of so many tokens below `vocabulary`, the same on every call.
void write_random_tokens(const std::string& path, int64_t num_tokens, int64_t vocabulary);

}  // namespace fullshard::tuning
