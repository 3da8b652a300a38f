// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/side_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "fullshard/base/crc32c.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/folder_names.h"
#include "fullshard/base/text_file.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/weights/open_weights.h"
#include "fullshard/stored/blocks/block_reader.h"
#include "fullshard/stored/manifest_source.h"
#include "fullshard/stored/model_record.h"

namespace fullshard::stored {
namespace {

constexpr const char* kAdapterFile = "adapter_model.safetensors";

StoredFile summed_file(const std::string& folder, const std::string& name) {
  const auto file = formats::FileHandle::open(fmt::format("{}/{}", folder, name));
  StoredFile stored{.name = name, .bytes = file.size()};
  std::string block(kBlockBytes, '\0');
  for (int64_t begin = 0; begin < file.size(); begin += kBlockBytes) {
    const int64_t bytes = std::min(kBlockBytes, file.size() - begin);
    file.read_at(begin, block.data(), bytes, "checksum");
    stored.checksums.push_back(base::crc32c(block.data(), bytes));
  }
  return stored;
}

// Whether the folder is a checkpoint of ours.
bool has_manifest(const std::string& folder) {
  const auto text = base::find_text_file(fmt::format("{}/{}", folder, kManifestName));
  return text && looks_like_manifest(*text);
}

// Each tensor once, under its name in files: as save_weights() writes them.
std::unique_ptr<TensorSource> weights_as_saved(const std::shared_ptr<const Manifest>& manifest,
                                               const std::string& folder) {
  ModelRecord record = record_in(manifest->progress.extra, folder);
  record.tied.clear();
  for (const auto& tensor : manifest->tensors) {
    for (size_t i = 1; i < tensor.names.size(); ++i) record.names[tensor.names[i]] = {};
  }
  return under_file_names(std::make_unique<ManifestSource>(folder, manifest, ""), record);
}

bool are_all_there(const Manifest& manifest, const std::string& folder) {
  return std::ranges::all_of(manifest.files, [&](const StoredFile& file) {
    return base::is_file(fmt::format("{}/{}", folder, file.name));
  });
}

// Whether the checkpoint is a whole model with the names of its tensors in files.
bool says_names(const Manifest& manifest, const std::string& folder) {
  const ModelRecord record = record_in(manifest.progress.extra, folder);
  return !record.config.empty() && record.adapter.empty() && !manifest.leaves_out_frozen;
}

bool have_same_values(const TensorSource& one, const TensorSource& other,
                      const StoredTensor& tensor) {
  constexpr int64_t kPart = int64_t{1} << 20;
  const StoredTensor& second = *other.find(tensor.name);
  const auto dtype = tensor.dtype == second.dtype ? tensor.dtype : at::kFloat;
  const int64_t numel = tensor.numel();
  for (int64_t begin = 0; begin < numel; begin += kPart) {
    const int64_t size = std::min(kPart, numel - begin);
    const ElementBuffer values(size, dtype), others(size, dtype);
    one.read(tensor.name, begin, values.all());
    other.read(tensor.name, begin, others.all());
    const auto bytes = static_cast<size_t>(values.all().bytes());
    if (std::memcmp(values.all().data, others.all().data, bytes) != 0) return false;
  }
  return true;
}

}  // namespace

std::vector<StoredFile> sum_side_files(const std::string& folder, const Manifest& manifest) {
  std::set<std::string> described;
  for (const auto& file : manifest.files) described.insert(file.name);
  std::vector<StoredFile> files;
  for (const auto& name : base::names_in_folder(folder)) {
    // A file system may keep hidden files of its own there.
    const bool is_own = described.contains(name) || name == kManifestName || name.starts_with('.');
    if (!is_own && base::is_file(fmt::format("{}/{}", folder, name))) {
      files.push_back(summed_file(folder, name));
    }
  }
  return files;
}

void check_sums_of_file(const StoredFile& file, const std::string& folder) {
  check_file(file, folder);
  if (file.bytes == 0) return;
  const WantedRange all{.stored = at::kByte,
                        .target = ElementSpan(nullptr, file.bytes, at::kByte),
                        .what = "a part of it",
                        .put = [](int64_t, const ElementSpan&) {}};
  read_block_files({{fmt::format("{}/{}", folder, file.name), file.bytes, &file.checksums, {all}}});
}

void check_side_files(const Manifest& manifest, const std::string& folder) {
  for (const auto& file : manifest.side_files) check_sums_of_file(file, folder);
}

void check_side_file(const Manifest& manifest, const std::string& folder, const std::string& name) {
  for (const auto& file : manifest.side_files) {
    if (file.name == name) check_sums_of_file(file, folder);
  }
}

void compare_side_weights(const std::shared_ptr<const Manifest>& manifest,
                          const std::string& folder) {
  const std::string adapter = fmt::format("{}/{}", folder, kAdapterFile);
  const bool is_adapter = base::is_file(adapter);
  if (!is_adapter && !holds_weights(folder)) return;
  const auto checked = weights_as_saved(manifest, folder);
  const auto side = open_weights(is_adapter ? adapter : folder);
  for (const auto& tensor : side->tensors()) {
    const StoredTensor* found = checked->find(tensor.name);
    const bool is_same = found != nullptr && found->shape == tensor.shape &&
                         have_same_values(*side, *checked, tensor);
    formats::check_input(is_same,
                         "{}: tensor '{}': differs from the checkpoint; the file is damaged "
                         "or was changed: write it again with fullshard checkpoint export",
                         tensor.file, tensor.name);
  }
  const ModelRecord record = record_in(manifest->progress.extra, folder);
  for (const auto& tensor : manifest->tensors) {
    const std::string name = file_name_of(tensor.names.front(), record);
    formats::check_input(tensor.is_buffer || name.empty() || side->find(name) != nullptr,
                         "{}: has no tensor '{}', which is in the checkpoint; write it again with "
                         "fullshard checkpoint export",
                         side->tensors().empty() ? folder : side->tensors().front().file, name);
  }
}

std::unique_ptr<TensorSource> open_model_weights(const std::string& folder) {
  if (!has_manifest(folder)) return open_weights(folder);
  const auto manifest = std::make_shared<const Manifest>(read_manifest(folder));
  if (says_names(*manifest, folder) && are_all_there(*manifest, folder)) {
    check_files(*manifest, folder);
    return weights_as_saved(manifest, folder);
  }
  check_side_files(*manifest, folder);
  return open_weights(folder);
}

bool holds_model_weights(const std::string& folder) {
  if (holds_weights(folder)) return true;
  if (!has_manifest(folder)) return false;
  const Manifest manifest = read_manifest(folder);
  return says_names(manifest, folder) && are_all_there(manifest, folder);
}

void check_model_file(const std::string& folder, const std::string& name) {
  if (has_manifest(folder)) check_side_file(read_manifest(folder), folder, name);
}

}  // namespace fullshard::stored
