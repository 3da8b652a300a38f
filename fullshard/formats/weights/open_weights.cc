// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/weights/open_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "fullshard/base/folder_names.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/folder.h"
#include "fullshard/formats/foreign/dcp_folder.h"
#include "fullshard/formats/foreign/deepspeed_folder.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/safetensors/parted_source.h"
#include "fullshard/formats/safetensors/safetensors_file.h"
#include "fullshard/formats/safetensors/weight_index.h"
#include "fullshard/formats/torch/torch_source.h"
#include "fullshard/formats/weights/flat_state_dict.h"

namespace fullshard {
namespace {

constexpr std::string_view kIndexSuffix = ".index.json";
constexpr std::array<std::string_view, 5> kNames = {
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
    "pytorch_model.bin.index.json", "pytorch_model_fsdp.bin"};

// Decided by the extension of the name if it is a known one, else by the first bytes.
bool is_torch_file(const std::string& path) {
  if (path.ends_with(".safetensors")) return false;
  for (const std::string_view suffix : {".bin", ".pt", ".pth"}) {
    if (path.ends_with(suffix)) return true;
  }
  const formats::FileHandle file = formats::FileHandle::open(path);
  const std::string start = file.read_text(0, std::min<int64_t>(file.size(), 2), "first bytes");
  return start == "PK" || start.starts_with('\x80');
}

std::unique_ptr<TensorSource> open_file(const std::string& path) {
  if (is_torch_file(path)) return std::make_unique<formats::TorchSource>(path);
  return std::make_unique<formats::SafetensorsFile>(path);
}

std::unique_ptr<TensorSource> open_index(const std::string& path) {
  const formats::WeightIndex index = formats::read_weight_index(path);
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  std::map<std::string, std::unique_ptr<TensorSource>> parts;
  for (const auto& [tensor, file] : index.file_of) parts[file];
  std::vector<std::string> missing;
  for (const auto& [file, part] : parts) {
    if (!base::is_file(folder + file)) missing.push_back(file);
  }
  formats::check_input(missing.empty(), "{}: names {} files, {} of them are missing, first {}",
                       path, parts.size(), missing.size(), missing.empty() ? "" : missing.front());
  for (auto& [file, part] : parts) part = open_file(folder + file);
  return std::make_unique<formats::PartedSource>(index, std::move(parts));
}

std::unique_ptr<TensorSource> open_one(const std::string& path) {
  return path.ends_with(kIndexSuffix) ? open_index(path) : open_file(path);
}

// The weights of a training checkpoint, or null.
std::unique_ptr<TensorSource> open_checkpoint(const std::string& path) {
  const std::string folder =
      formats::is_dcp_folder(path) ? path : formats::find_accelerate_folders(path).model;
  if (!folder.empty()) {
    auto weights = formats::DcpFolder(folder).weights();
    formats::check_input(weights != nullptr, "{}: holds the state of an optimizer and no weights",
                         folder);
    return weights;
  }
  return formats::is_deepspeed_folder(path) ? formats::DeepSpeedFolder(path).weights() : nullptr;
}

// Empty if there is none. A dangling link, as an interrupted download leaves, counts as a file.
std::string named_weights(const std::string& folder) {
  for (const std::string_view name : kNames) {
    std::string file = fmt::format("{}/{}", folder, name);
    if (base::is_there(file)) return file;
  }
  return {};
}

}  // namespace

bool holds_weights(const std::string& folder) {
  return !named_weights(folder).empty() || formats::is_dcp_folder(folder) ||
         !formats::find_accelerate_folders(folder).model.empty() ||
         formats::is_deepspeed_folder(folder);
}

std::unique_ptr<TensorSource> open_weights(const std::string& path) {
  auto source = open_tensors(path);
  if (!formats::FlatStateDict::is_one(*source)) return source;
  auto weights = formats::FlatStateDict(std::move(source)).weights();
  formats::check_input(weights != nullptr, "{}: holds the state of an optimizer and no weights",
                       path);
  return weights;
}

std::unique_ptr<TensorSource> open_tensors(const std::string& path) {
  if (!base::is_folder(path)) return open_one(path);
  const std::string file = named_weights(path);
  formats::check_input(file.empty() || base::is_file(file),
                       "{}: is not a file, or is a link to a missing one; weights are expected "
                       "under this name",
                       file);
  if (!file.empty()) return open_one(file);
  if (auto weights = open_checkpoint(path)) return weights;
  formats::fail_input(
      "{}: holds no weights; expected one of {}, or a checkpoint of DeepSpeed or "
      "torch.distributed.checkpoint",
      path, fmt::join(kNames, ", "));
}

}  // namespace fullshard
