// SPDX-License-Identifier: Apache-2.0
// A checkpoint's folder on its way to its name, and the folder that holds several of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fullshard::stored {

// Names the newest of the checkpoints beside it, for programs that look for that.
inline constexpr const char* kLatest = "latest";

// "step-000100"
std::string checkpoint_name(int64_t step);

// Whether a checkpoint may have this name: nothing is there, an empty folder, or a checkpoint,
// which is replaced.
bool may_become_checkpoint(const std::string& folder);

// An Error of kind usage where a folder can hold none: something else has its name, or that of
// `latest` in it.
void check_may_hold_checkpoints(const std::string& directory);

// Nothing has the checkpoint's name before commit(): files are written into `<folder>.part`. Where
// a checkpoint of this name exists it stays until then, and is exchanged in one move.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string folder);

  const std::string& path() const { return folder_; }
  const std::string& part() const { return part_; }

  // Makes the part folder anew, and those above it. A folder of this name that is no checkpoint is
  // an error: it will not be replaced.
  void begin() const;
  // Adds the manifest, flushes everything, gives the folder its name and points `latest` at it.
  void commit(const std::string& manifest_text) const;
  void abandon() const noexcept;  // removes the part folder

 private:
  std::string folder_;
  std::string part_;
};

// A folder with files in it. First it loses its name, so that no half of it is ever seen.
void remove_checkpoint(const std::string& folder);

}  // namespace fullshard::stored
