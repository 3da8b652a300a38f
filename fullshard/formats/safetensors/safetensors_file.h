// SPDX-License-Identifier: Apache-2.0
// One safetensors file as a source of tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/tensor_source.h"

namespace fullshard::formats {

class SafetensorsFile : public TensorSource {
 public:
  // Reads and checks the header; the file stays open.
  explicit SafetensorsFile(const std::string& path);

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  void read(const std::string& name, int64_t begin, ElementSpan out) const override;

  std::optional<Place> place_of(const std::string& name) const override;

  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  FileHandle file_;
  std::vector<StoredTensor> tensors_;
  std::vector<int64_t> offsets_;  // of tensors_, in the file
  std::map<std::string, std::string> metadata_;
};

}  // namespace fullshard::formats
