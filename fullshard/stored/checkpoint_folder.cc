// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/checkpoint_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "fullshard/base/file_kind.h"
#include "fullshard/base/folder_names.h"
#include "fullshard/base/text_file.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/folder.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/replace_file.h"
#include "fullshard/stored/manifest.h"

namespace fullshard::stored {
namespace {

constexpr const char* kPartSuffix = ".part";

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::pair<std::string, std::string> split(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

void write_flushed(const std::string& path, const std::string& text) {
  auto file = formats::FileHandle::create(path);
  file.write_at(0, text.data(), static_cast<int64_t>(text.size()));
  file.sync();
}

// A checkpoint whose manifest is missing, as after an interrupted copy, counts as one too.
bool is_checkpoint(const std::string& folder, const std::vector<std::string>& names) {
  const auto holds_weights = [](const std::string& name) {
    return name.starts_with("weights-") && name.ends_with(".bin");
  };
  if (std::any_of(names.begin(), names.end(), holds_weights)) return true;
  if (std::find(names.begin(), names.end(), kManifestName) == names.end()) return false;
  return looks_like_manifest(base::read_text_file(fmt::format("{}/{}", folder, kManifestName)));
}

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("step-{:06}", step); }

void remove_checkpoint(const std::string& folder) {
  const auto part = without_slashes(folder) + kPartSuffix;
  base::remove_flat_folder(part);
  if (std::rename(folder.c_str(), part.c_str()) == 0) base::remove_flat_folder(part);
}

CheckpointFolder::CheckpointFolder(std::string folder)
    : folder_(without_slashes(std::move(folder))), part_(folder_ + kPartSuffix) {}

bool may_become_checkpoint(const std::string& folder) {
  if (!base::is_there(folder)) return true;
  const auto names = base::names_in_folder(folder);
  return (base::is_folder(folder) && names.empty()) || is_checkpoint(folder, names);
}

void check_may_hold_checkpoints(const std::string& directory) {
  if (base::is_there(directory) && !base::is_folder(directory)) {
    fail_as(ErrorKind::usage,
            "{}: is not a folder, but checkpoints are saved there; move it away, or choose "
            "another --output",
            directory);
  }
  const std::string latest = fmt::format("{}/{}", directory, kLatest);
  struct stat facts = {};
  if (::lstat(latest.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode)) {
    fail_as(ErrorKind::usage,
            "{}: is a folder, but a file of this name names the newest checkpoint; "
            "move it away, or choose another --output",
            latest);
  }
}

void CheckpointFolder::begin() const {
  const auto [parent, name] = split(folder_);
  formats::check_input(!name.empty() && name != "." && name != ".." && name != kLatest,
                       "{}: invalid name of a checkpoint folder", folder_);
  formats::check_input(
      may_become_checkpoint(folder_),
      "{}: exists and is not a checkpoint, so it will not be replaced; save to another folder",
      folder_);
  base::remove_flat_folder(part_);  // of a run that was killed
  formats::check_input(!base::is_there(part_),
                       "{}: cannot be removed; remove it, or save to another folder", part_);
  formats::make_folder_tree(part_);
}

void CheckpointFolder::commit(const std::string& manifest_text) const {
  write_flushed(fmt::format("{}/{}", part_, kManifestName), manifest_text);
  formats::sync_folder_of(part_ + "/");
  base::exchange_names(part_, folder_);
  formats::sync_folder_of(folder_);
  base::remove_flat_folder(part_);

  const auto [parent, name] = split(folder_);
  formats::replace_file(fmt::format("{}/{}", parent, kLatest), name + "\n");
}

void CheckpointFolder::abandon() const noexcept { base::remove_flat_folder(part_); }

}  // namespace fullshard::stored
