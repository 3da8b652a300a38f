// SPDX-License-Identifier: Apache-2.0
// Elements of a file into tensors, converted a block at a time.
#pragma once

#include <cstdint>
#include <string_view>

#include "fullshard/formats/element_span.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/tensor_source.h"

namespace fullshard::formats {

class EntrySum;

// Fills `out` with the elements of dtype `stored` that are contiguous from byte `offset` on.
// Without conversion they are read directly into it, otherwise through a buffer of 1 MiB. `sum` may
// be null; it gets the bytes as they are in the file.
void read_elements(const FileHandle& file, int64_t offset, at::ScalarType stored,
                   const ElementSpan& out, std::string_view what, EntrySum* sum = nullptr);

// Checks the arguments of TensorSource::read().
void check_target(const StoredTensor& tensor, int64_t begin, const ElementSpan& out);

// The tensor of this name, or an error that names `where` and the closest existing name.
const StoredTensor& find_or_fail(const TensorSource& source, const std::string& name,
                                 std::string_view where);

}  // namespace fullshard::formats
