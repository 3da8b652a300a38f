// SPDX-License-Identifier: Apache-2.0
// Tensors that do not lie in their storage in the order of their elements: transposed, sliced,
// expanded.
#pragma once

#include <cstdint>
#include <string_view>

#include "fullshard/formats/element_span.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/torch/torch_file.h"

namespace fullshard::formats {

// Like TorchFile::read(). The storage is walked in its own order, a window at a time, so that every
// byte is read once or nearly so; at most 2 MiB are held.
void read_strided(const FileHandle& file, const TorchTensor& tensor, int64_t begin,
                  const ElementSpan& out, std::string_view what);

}  // namespace fullshard::formats
