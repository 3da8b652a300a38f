// SPDX-License-Identifier: Apache-2.0
// A checkpoint's folder until it is renamed, and the folder that holds several checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fullshard::stored {

// This file names the newest checkpoint of its folder, for programs that look for it.
inline constexpr const char* kLatest = "latest";

// "step-000100"
std::string checkpoint_name(int64_t step);

// Whether a checkpoint may have this name: nothing is there, or an empty folder, or a checkpoint,
// which is replaced.
bool may_become_checkpoint(const std::string& folder);

// An Error of kind usage if the folder cannot hold checkpoints: its name, or that of `latest` in
// it, is taken by something else.
void check_may_hold_checkpoints(const std::string& directory);

// Nothing has the checkpoint's name before commit(): files are written into `<folder>.part`. An
// existing checkpoint of this name stays until then, and is exchanged in one move.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string folder);

  const std::string& path() const { return folder_; }
  const std::string& part() const { return part_; }

  // Creates an empty part folder, and those above it. A folder of this name that is not a
  // checkpoint is an error: it will not be replaced.
  void begin() const;
  // Adds the manifest, flushes everything, gives the folder its name and points `latest` at it.
  void commit(const std::string& manifest_text) const;
  void abandon() const noexcept;  // removes the part folder

 private:
  std::string folder_;
  std::string part_;
};

// Removes a folder with files in it. It is renamed first, so that no reader sees a part of it.
void remove_checkpoint(const std::string& folder);

}  // namespace fullshard::stored
