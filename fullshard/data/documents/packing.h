// SPDX-License-Identifier: Apache-2.0
// Several documents in each sequence of one length.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fullshard::data {

// Which documents share a sequence: best fit, longest first, as TRL packs by default. Every length
// is from 1 to `capacity`. The documents of a sequence are in the order of their numbers, and
// sequences in that of their first documents; a function of the lengths only.
std::vector<std::vector<int64_t>> pack_documents(std::span<const int64_t> lengths,
                                                 int64_t capacity);

}  // namespace fullshard::data
