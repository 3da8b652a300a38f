// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/safetensors/parted_source.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "fullshard/formats/input_error.h"
#include "fullshard/formats/read_elements.h"

namespace fullshard::formats {

PartedSource::PartedSource(const WeightIndex& index,
                           std::map<std::string, std::unique_ptr<TensorSource>> parts)
    : path_(index.path), parts_(std::move(parts)) {
  check_promises(index);
  std::map<std::string, const TensorSource*> source_of;
  for (const auto& [tensor, file] : index.file_of) source_of[tensor] = parts_.at(file).get();
  for (const auto& [file, part] : parts_) {
    for (const auto& tensor : part->tensors()) {
      if (index.file_of.contains(tensor.name)) continue;
      const bool is_new = source_of.emplace(tensor.name, part.get()).second;
      check_input(is_new, "{}: does not say which of two files holds tensor '{}'", path_,
                  tensor.name);
    }
  }
  for (const auto& [name, source] : source_of) {
    tensors_.push_back(*source->find(name));
    sources_.push_back(source);
  }
}

void PartedSource::check_promises(const WeightIndex& index) const {
  constexpr size_t kMostNamed = 8;
  std::vector<std::string> lacking;
  size_t count = 0;
  for (const auto& [tensor, file] : index.file_of) {
    if (parts_.at(file)->find(tensor) != nullptr) continue;
    if (++count <= kMostNamed) lacking.push_back(fmt::format("'{}' ({})", tensor, file));
  }
  check_input(count == 0, "{}: lists {} tensors that their files do not have: {}{}", path_, count,
              fmt::format("{}", fmt::join(lacking, ", ")), count > kMostNamed ? ", ..." : "");
}

void PartedSource::read(const std::string& name, int64_t begin, ElementSpan out) const {
  const StoredTensor& tensor = find_or_fail(*this, name, path_);
  sources_[static_cast<size_t>(&tensor - tensors_.data())]->read(name, begin, out);
}

std::optional<TensorSource::Place> PartedSource::place_of(const std::string& name) const {
  const StoredTensor* tensor = find(name);
  if (tensor == nullptr) return std::nullopt;
  return sources_[static_cast<size_t>(tensor - tensors_.data())]->place_of(name);
}

std::vector<SummedStorage> PartedSource::storages_of(const std::string& name) const {
  const StoredTensor& tensor = find_or_fail(*this, name, path_);
  return sources_[static_cast<size_t>(&tensor - tensors_.data())]->storages_of(name);
}

}  // namespace fullshard::formats
