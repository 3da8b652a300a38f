// SPDX-License-Identifier: Apache-2.0
// Compares what was read of tensors with the checksums that their files carry (those of zip
// archives, one for a whole storage). A storage that was read completely has already been compared
// at its last byte.
#pragma once

#include <string>
#include <vector>

#include "fullshard/formats/tensor_source.h"

namespace fullshard::formats {

// Call after the tensors were read, before their values are used. The rest of a partly read storage
// is read now: ranks that read parts of the same tensors divide the storages among them, so that
// together they read no byte more than once for this. Damage is an error of the kind input on the
// rank that finds it.
void check_sums_of(const TensorSource& source, const std::vector<std::string>& names, int rank = 0,
                   int num_ranks = 1);
// The same for all tensors of the source.
void check_sums_of(const TensorSource& source);

}  // namespace fullshard::formats
