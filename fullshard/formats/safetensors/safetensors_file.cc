// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/safetensors/safetensors_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "fullshard/formats/read_elements.h"
#include "fullshard/formats/safetensors/safetensors_header.h"

namespace fullshard::formats {

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(FileHandle::open(path)) {
  SafetensorsHeader header = read_safetensors_header(file_);
  std::ranges::sort(header.entries, {}, &SafetensorsEntry::name);
  for (auto& entry : header.entries) {
    tensors_.push_back({entry.name, entry.shape, entry.type->dtype, path});
    offsets_.push_back(entry.begin);
  }
  metadata_ = std::move(header.metadata);
}

void SafetensorsFile::read(const std::string& name, int64_t begin, ElementSpan out) const {
  const StoredTensor& tensor = find_or_fail(*this, name, file_.path());
  check_target(tensor, begin, out);
  const int64_t offset = offsets_[static_cast<size_t>(&tensor - tensors_.data())];
  const auto size = element_bytes(tensor.dtype);
  read_elements(file_, offset + begin * size, tensor.dtype, out, fmt::format("tensor '{}'", name));
}

std::optional<TensorSource::Place> SafetensorsFile::place_of(const std::string& name) const {
  const StoredTensor* tensor = find(name);
  if (tensor == nullptr) return std::nullopt;
  return Place{file_.descriptor(), offsets_[static_cast<size_t>(tensor - tensors_.data())]};
}

}  // namespace fullshard::formats
