// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/found_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>
#include <vector>

#include "fullshard/formats/folder.h"
#include "fullshard/formats/foreign/dcp_folder.h"
#include "fullshard/formats/foreign/deepspeed_files.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/stored/last_checkpoint.h"
#include "fullshard/stored/manifest.h"

namespace fullshard::stored {
namespace {

bool is_own_folder(const std::string& folder) {
  return base::is_file(fmt::format("{}/{}", folder, kManifestName));
}

// Our newest complete checkpoint in a folder, or in a run's folder `checkpoints`.
struct NewestOwn {
  std::string folder = {};                // empty: there is none
  std::vector<std::string> skipped = {};  // in the folder itself, and why
};

NewestOwn find_newest_own(const std::string& path) {
  LastCheckpoint last = last_checkpoint(path);
  if (!last.folder.empty()) return {.folder = std::move(last.folder)};
  return {.folder = last_checkpoint(path + "/checkpoints").folder,
          .skipped = std::move(last.skipped)};
}

std::optional<CheckpointKind> kind_by_dcp(const std::string& path) {
  if (formats::is_dcp_folder(path)) return CheckpointKind::dcp;
  const formats::AccelerateFolders folders = formats::find_accelerate_folders(path);
  if (folders.model.empty() && folders.optimizer.empty()) return std::nullopt;
  return CheckpointKind::accelerate;
}

// A folder without a marker can only hold weights, unless it is a damaged one of ours.
void check_is_no_broken_own(const std::string& path, const NewestOwn& newest) {
  // It has our file names, but nothing that describes their contents.
  formats::check_input(
      !base::is_file(path + "/weights-00000.bin"),
      "{}: has no {}, which describes the contents of its files; the checkpoint is "
      "incomplete: copy it again or use another",
      path, kManifestName);
  formats::check_input(newest.skipped.empty(), "{}: has no complete checkpoint: {}", path,
                       fmt::join(newest.skipped, "; "));
}

}  // namespace

FoundCheckpoint::FoundCheckpoint(CheckpointKind kind, std::string path, std::string tag)
    : kind_(kind), path_(std::move(path)), tag_(std::move(tag)) {}

FoundCheckpoint FoundCheckpoint::as_told(CheckpointKind kind, std::string path) {
  return {kind, std::move(path)};
}

FoundCheckpoint FoundCheckpoint::find(const std::string& path, const std::string& tag) {
  formats::check_input(base::is_file(path) || base::is_folder(path), "{}: does not exist", path);
  if (base::is_file(path)) return {CheckpointKind::weights, path};
  const std::string named = fmt::format("{}/{}", path, tag);
  if (!tag.empty() && formats::is_plain_name(tag) && is_own_folder(named)) {
    return {CheckpointKind::own, named};
  }
  if (is_own_folder(path)) return {CheckpointKind::own, path};
  if (formats::is_deepspeed_folder(path)) return {CheckpointKind::deepspeed, path, tag};
  formats::check_input(tag.empty(), "{}: has no checkpoint '{}'", path, tag);
  if (const auto kind = kind_by_dcp(path)) return {*kind, path};
  const NewestOwn newest = find_newest_own(path);
  if (!newest.folder.empty()) return {CheckpointKind::own, newest.folder};
  check_is_no_broken_own(path, newest);
  return {CheckpointKind::weights, path};
}

FoundCheckpoint FoundCheckpoint::find_to_resume(const std::string& path) {
  formats::check_input(base::is_file(path) || base::is_folder(path), "{}: does not exist", path);
  if (base::is_file(path)) return {CheckpointKind::weights, path};
  if (is_own_folder(path)) return {CheckpointKind::own, path};
  const NewestOwn newest = find_newest_own(path);
  if (!newest.folder.empty()) return {CheckpointKind::own, newest.folder};
  if (formats::is_deepspeed_folder(path))
    return {CheckpointKind::deepspeed, formats::find_deepspeed_folder(path)};
  if (const auto kind = kind_by_dcp(path)) return {*kind, path};
  check_is_no_broken_own(path, newest);
  return {CheckpointKind::weights, path};
}

}  // namespace fullshard::stored
