// SPDX-License-Identifier: Apache-2.0
// The index of weights in several files: model.safetensors.index.json,
// pytorch_model.bin.index.json.
#pragma once

#include <map>
#include <string>

namespace fullshard::formats {

struct WeightIndex {
  std::string path;                            // of the index
  std::map<std::string, std::string> file_of;  // tensor -> name of a file in the same folder
};

// The names of files in it are checked: they must refer to files of the index's own folder.
WeightIndex read_weight_index(const std::string& path);

}  // namespace fullshard::formats
