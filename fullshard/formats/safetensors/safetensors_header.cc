// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/safetensors/safetensors_header.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "fullshard/formats/input_error.h"
#include "fullshard/formats/safetensors/strict_json.h"

namespace fullshard::formats {
namespace {

using nlohmann::json;

constexpr int64_t kMostHeaderBytes = 100'000'000;  // as the safetensors package
constexpr int64_t kLengthBytes = 8;
constexpr std::string_view kMetadata = "__metadata__";

std::optional<int64_t> natural(const json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return static_cast<int64_t>(number);
}

// A list of whole numbers, or nothing.
std::optional<std::vector<int64_t>> naturals(const json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const auto& value : *found) {
    const auto number = natural(value);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

std::string names_of_types() {
  std::vector<std::string_view> names;
  for (const auto& type : element_types()) names.push_back(type.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

const ElementType* type_of(const json& entry, const std::string& where) {
  const auto found = entry.find("dtype");
  check_input(found != entry.end() && found->is_string(), "{}: has no dtype", where);
  const auto& name = found->get_ref<const std::string&>();
  const ElementType* type = find_element_type(name);
  check_input(type != nullptr, "{}: its dtype is '{}', expected one of {}", where, name,
              names_of_types());
  return type;
}

// Bytes of so many elements, or nothing if that is not a whole number of bytes or overflows.
std::optional<int64_t> bytes_of(const std::vector<int64_t>& shape, const ElementType& type) {
  const auto numel = checked_numel(shape);
  int64_t bits = 0;
  if (!numel || __builtin_mul_overflow(*numel, int64_t{type.bits}, &bits) || bits % 8 != 0) {
    return std::nullopt;
  }
  return bits / 8;
}

SafetensorsEntry parse_entry(const std::string& name, const json& value, const std::string& path) {
  const std::string where = fmt::format("{}: tensor '{}'", path, name);
  check_input(value.is_object(), "{}: its entry is not a JSON object", where);
  SafetensorsEntry entry{.name = name, .type = type_of(value, where), .shape = {}};
  const auto shape = naturals(value, "shape");
  check_input(shape.has_value(), "{}: its shape is not a list of non-negative integers", where);
  entry.shape = *shape;
  const auto offsets = naturals(value, "data_offsets");
  check_input(offsets && offsets->size() == 2 && (*offsets)[0] <= (*offsets)[1],
              "{}: its data_offsets are not [begin, end]", where);
  entry.begin = (*offsets)[0];
  entry.end = (*offsets)[1];
  const auto bytes = bytes_of(entry.shape, *entry.type);
  check_input(bytes.has_value(), "{}: shape {} of {} has no valid size in bytes", where,
              format_shape(entry.shape), entry.type->name);
  check_input(*bytes == entry.bytes(),
              "{}: shape {} of {} takes {} bytes, its data_offsets give {}", where,
              format_shape(entry.shape), entry.type->name, *bytes, entry.bytes());
  return entry;
}

std::map<std::string, std::string> parse_metadata(const json& value, const std::string& path) {
  check_input(value.is_object(), "{}: header: __metadata__ is not a JSON object", path);
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    check_input(text.is_string(), "{}: header: __metadata__ '{}' is not a string", path, key);
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

// Checks that the tensors are contiguous from 0 on and fill the file.
void check_cover(const std::vector<SafetensorsEntry>& entries, int64_t data_bytes,
                 const std::string& path) {
  int64_t end = 0;
  for (const auto& entry : entries) {
    check_input(entry.begin >= end, "{}: tensor '{}': begins at byte {}, inside the previous one",
                path, entry.name, entry.begin);
    check_input(entry.begin == end,
                "{}: tensor '{}': begins at byte {}, {} bytes after the previous one", path,
                entry.name, entry.begin, entry.begin - end);
    end = entry.end;
  }
  check_input(end <= data_bytes,
              "{}: is truncated: its tensors take {} bytes, only {} are present; copy it again",
              path, end, data_bytes);
  check_input(end == data_bytes, "{}: has {} bytes after its last tensor", path, data_bytes - end);
}

std::string read_json(const FileHandle& file) {
  const std::string& path = file.path();
  check_input(file.size() >= kLengthBytes,
              "{}: has {} bytes, too few for a safetensors file: copy it again", path, file.size());
  uint64_t length = 0;
  file.read_at(0, &length, sizeof length, "header length");
  constexpr std::string_view kPointer = "version https://git-lfs";
  const auto most = static_cast<int64_t>(kPointer.size());
  if (file.size() >= most && file.read_text(0, most, "header") == kPointer) {
    fail_input("{}: is a pointer of Git LFS, not the weights; fetch them with git lfs pull", path);
  }
  check_input(length <= static_cast<uint64_t>(file.size() - kLengthBytes),
              "{}: its header would take {} bytes and the file has {}; it is truncated, or not "
              "a safetensors file",
              path, length, file.size());
  check_input(length <= static_cast<uint64_t>(kMostHeaderBytes),
              "{}: its header takes {} bytes, more than the {} that safetensors allows", path,
              length, kMostHeaderBytes);
  std::string text = file.read_text(kLengthBytes, static_cast<int64_t>(length), "header");
  check_input(text.starts_with('{'), "{}: its header does not begin with '{{'", path);
  return text;
}

}  // namespace

SafetensorsHeader read_safetensors_header(const FileHandle& file) {
  const std::string& path = file.path();
  const std::string text = read_json(file);
  const json document = parse_strict_json(text, path + ": header");
  SafetensorsHeader header;
  header.data_begin = kLengthBytes + static_cast<int64_t>(text.size());
  for (const auto& [name, value] : document.items()) {
    if (name == kMetadata) {
      header.metadata = parse_metadata(value, path);
    } else {
      header.entries.push_back(parse_entry(name, value, path));
    }
  }
  const auto place = [](const SafetensorsEntry& entry) {
    return std::pair(entry.begin, entry.end);
  };
  std::ranges::stable_sort(header.entries, {}, place);
  check_cover(header.entries, file.size() - header.data_begin, path);
  for (auto& entry : header.entries) {
    entry.begin += header.data_begin;
    entry.end += header.data_begin;
  }
  return header;
}

SafetensorsHeader lay_out_safetensors(const std::vector<TensorPlan>& tensors,
                                      const std::string& path) {
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}};
  for (const auto& tensor : tensors) {
    const std::string where = fmt::format("{}: tensor '{}'", path, tensor.name);
    check_input(is_readable(tensor.dtype), "{}: unsupported dtype {}", where,
                c10::toString(tensor.dtype));
    check_input(tensor.name != kMetadata, "{}: this name is reserved by the format", where);
    const ElementType* type = find_element_type(tensor.dtype);
    const auto bytes = bytes_of(tensor.shape, *type);
    check_input(bytes.has_value(), "{}: its shape {} is impossible", where,
                format_shape(tensor.shape));
    header.entries.push_back({tensor.name, type, tensor.shape, 0, *bytes});
  }
  const auto place = [](const SafetensorsEntry& entry) {
    return std::pair(entry.type, std::string_view(entry.name));
  };
  std::ranges::sort(header.entries, {}, place);
  int64_t end = 0;
  for (auto& entry : header.entries) {
    const int64_t bytes = entry.bytes();
    entry.begin = end;
    check_input(!__builtin_add_overflow(end, bytes, &end), "{}: is impossibly large", path);
    entry.end = end;
  }
  try {
    header.data_begin = static_cast<int64_t>(format_safetensors_header(header).size());
  } catch (const json::exception&) {
    fail_input("{}: a tensor has a name that is not UTF-8", path);
  }
  for (auto& entry : header.entries) {
    entry.begin += header.data_begin;
    entry.end += header.data_begin;
  }
  return header;
}

std::string format_safetensors_header(const SafetensorsHeader& header) {
  // Offsets count from the first tensor, wherever that lies in the file.
  const int64_t origin = header.entries.empty() ? 0 : header.entries.front().begin;
  std::string text = fmt::format("{{\"{}\":{}", kMetadata, json(header.metadata).dump());
  for (const auto& entry : header.entries) {
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        json(entry.name).dump(), entry.type->name, fmt::join(entry.shape, ","),
                        entry.begin - origin, entry.end - origin);
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + text;
}

}  // namespace fullshard::formats
