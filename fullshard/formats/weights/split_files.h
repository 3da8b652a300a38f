// SPDX-License-Identifier: Apache-2.0
// Which tensors go into which file when a model exceeds the size limit of one file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/formats/safetensors/safetensors_writer.h"

namespace fullshard::formats {

struct FilePlan {
  std::string name;  // "model.safetensors", or "model-00001-of-00003.safetensors"
  std::vector<TensorPlan> tensors;
};

struct SplitFiles {
  std::vector<FilePlan> files;  // at least one
  int64_t total_bytes = 0;      // of the tensors
  int64_t total_numel = 0;

  bool needs_index() const { return files.size() > 1; }
  // The contents of model.safetensors.index.json, as transformers writes it.
  std::string index_json() const;
};

inline constexpr const char* kSafetensorsIndex = "model.safetensors.index.json";

// In the given order, as huggingface_hub does it: a file is closed when the next tensor would pass
// the limit; a tensor larger than the limit has a file of its own.
SplitFiles split_into_files(const std::vector<TensorPlan>& tensors, int64_t max_file_bytes);

}  // namespace fullshard::formats
