// SPDX-License-Identifier: Apache-2.0
// What was read of tensors, compared with the checksums that their files carry (those of zip
// archives, one for a whole storage). A storage that was read whole has been compared with its last
// byte already.
#pragma once

#include <string>
#include <vector>

#include "fullshard/formats/tensor_source.h"

namespace fullshard::formats {

// After the tensors were read, before their values are used. A storage of which only parts were
// read is read on: of several ranks that read parts of the same tensors each looks after its share
// of the storages, so that all together read no byte more than once for this. Damage is an error of
// the kind input on the rank that finds it.
void check_sums_of(const TensorSource& source, const std::vector<std::string>& names, int rank = 0,
                   int num_ranks = 1);
// Of all its tensors.
void check_sums_of(const TensorSource& source);

}  // namespace fullshard::formats
