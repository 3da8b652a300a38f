// SPDX-License-Identifier: Apache-2.0
// Rows of several batches as one batch.
#pragma once

#include <cstdint>
#include <vector>

#include "fullshard/data/batch.h"

namespace fullshard::data {

// Row i of part p becomes row places[p][i]; the places are all rows of the result, once each.
// Shorter rows are padded at their end, with a mask if there is one, otherwise as causal rows are.
// All parts are for one kind of model.
TokenBatch join_rows(const std::vector<TokenBatch>& parts,
                     const std::vector<std::vector<int64_t>>& places);

}  // namespace fullshard::data
