// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file, read and made.
//
//     bytes 0..8       N, little-endian
//     bytes 8..8+N     JSON: {"__metadata__": {"format": "pt"},
//                             "NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
//                             ...}
//                      padded with spaces to a multiple of 8
//     the rest         the tensors, row-major, without holes; offsets count from here
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fullshard/formats/element_type.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/safetensors/safetensors_writer.h"

namespace fullshard::formats {

struct SafetensorsEntry {
  std::string name;
  const ElementType* type = nullptr;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // bytes of the file
  int64_t end = 0;

  int64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        // in the order of their bytes
  std::map<std::string, std::string> metadata;  // the values under "__metadata__"
  int64_t data_begin = 8;

  int64_t file_bytes() const { return entries.empty() ? data_begin : entries.back().end; }
};

// All rules of the format are checked, and the size of the file.
SafetensorsHeader read_safetensors_header(const FileHandle& file);

// Placed as the safetensors package places them: by type, widest first, then by name. `path` is for
// messages.
SafetensorsHeader lay_out_safetensors(const std::vector<TensorPlan>& tensors,
                                      const std::string& path);

// The bytes before data_begin, for a result of lay_out_safetensors().
std::string format_safetensors_header(const SafetensorsHeader& header);

}  // namespace fullshard::formats
