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

// The elements of dtype `stored` that lie one after the other from byte `offset` on fill `out`.
// Without conversion they go straight into it, otherwise through 1 MiB. `sum` may be null: it is
// told the bytes as they lie in the file.
void read_elements(const FileHandle& file, int64_t offset, at::ScalarType stored,
                   const ElementSpan& out, std::string_view what, EntrySum* sum = nullptr);

// What TensorSource::read() asks of its arguments.
void check_target(const StoredTensor& tensor, int64_t begin, const ElementSpan& out);

// The tensor of this name, or an error that names `where` and the closest name there is.
const StoredTensor& find_or_fail(const TensorSource& source, const std::string& name,
                                 std::string_view where);

}  // namespace fullshard::formats
