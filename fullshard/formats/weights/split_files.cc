// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/weights/split_files.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "fullshard/formats/element_type.h"
#include "fullshard/formats/input_error.h"

namespace fullshard::formats {

SplitFiles split_into_files(const std::vector<TensorPlan>& tensors, int64_t max_file_bytes) {
  check(max_file_bytes > 0, "split: the size limit of a file is {} bytes, expected at least 1",
        max_file_bytes);
  SplitFiles split;
  FilePlan open;
  int64_t open_bytes = 0;
  for (const auto& tensor : tensors) {
    const auto numel = checked_numel(tensor.shape);
    check(numel.has_value(), "split: tensor '{}' has the invalid shape {}", tensor.name,
          format_shape(tensor.shape));
    const int64_t bytes = *numel * element_bytes(tensor.dtype);
    split.total_numel += *numel;
    split.total_bytes += bytes;
    if (bytes > max_file_bytes) {
      split.files.push_back({"", {tensor}});
      continue;
    }
    if (open_bytes + bytes > max_file_bytes) {
      split.files.push_back(std::exchange(open, {}));
      open_bytes = 0;
    }
    open.tensors.push_back(tensor);
    open_bytes += bytes;
  }
  if (!open.tensors.empty() || split.files.empty()) split.files.push_back(std::move(open));
  for (size_t i = 0; i < split.files.size(); ++i) {
    split.files[i].name = split.needs_index() ? fmt::format("model-{:05}-of-{:05}.safetensors",
                                                            i + 1, split.files.size())
                                              : "model.safetensors";
  }
  return split;
}

std::string SplitFiles::index_json() const {
  nlohmann::json map = nlohmann::json::object();  // sorted by name
  for (const auto& file : files) {
    for (const auto& tensor : file.tensors) map[tensor.name] = file.name;
  }
  const nlohmann::json index = {
      {"metadata", {{"total_parameters", total_numel}, {"total_size", total_bytes}}},
      {"weight_map", std::move(map)}};
  try {
    return index.dump(2, ' ', true) + "\n";  // ASCII, as Python's json.dumps
  } catch (const nlohmann::json::exception&) {
    fail_input("{}: a tensor has a name that is not UTF-8", kSafetensorsIndex);
  }
}

}  // namespace fullshard::formats
