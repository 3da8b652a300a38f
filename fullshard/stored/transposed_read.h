// SPDX-License-Identifier: Apache-2.0
// Part of a matrix from a file that holds its transpose.
#pragma once

#include <cstdint>
#include <string>

#include "fullshard/formats/tensor_source.h"

namespace fullshard::stored {

// Elements [begin, begin + out.numel), row-major, of a matrix of rows × columns, whose transpose
// (columns × rows) the source holds under `name`. Each element is read once; in addition to `out`,
// at most 4 MiB (or one row of the file) is held.
void read_transposed(const TensorSource& source, const std::string& name, int64_t rows,
                     int64_t columns, int64_t begin, const ElementSpan& out);

}  // namespace fullshard::stored
