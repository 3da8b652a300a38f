// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/safetensors/weight_index.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/safetensors/strict_json.h"

namespace fullshard::formats {
namespace {

constexpr int64_t kMostIndexBytes = 100'000'000;

bool is_plain_name(const std::string& name) {
  const auto is_odd = [](char letter) {
    return letter == '/' || letter == '\\' || static_cast<unsigned char>(letter) < 0x20;
  };
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         std::ranges::none_of(name, is_odd);
}

}  // namespace

WeightIndex read_weight_index(const std::string& path) {
  const FileHandle file = FileHandle::open(path);
  check_input(file.size() <= kMostIndexBytes, "{}: has {} bytes, too many for an index", path,
              file.size());
  const auto document = parse_strict_json(file.read_text(0, file.size(), "index"), path);
  const auto map = document.is_object() ? document.find("weight_map") : document.end();
  check_input(map != document.end() && map->is_object() && !map->empty(),
              "{}: has no \"weight_map\" of tensors to files", path);
  WeightIndex index{path, {}};
  for (const auto& [tensor, name] : map->items()) {
    check_input(name.is_string(), "{}: the file of tensor '{}' is not a string", path, tensor);
    const auto& text = name.get_ref<const std::string&>();
    check_input(is_plain_name(text),
                "{}: tensor '{}' is assigned to {}, expected the name of a file in the folder of "
                "the index",
                path, tensor, name.dump());
    index.file_of[tensor] = text;
  }
  return index;
}

}  // namespace fullshard::formats
