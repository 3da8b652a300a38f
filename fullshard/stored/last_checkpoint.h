// SPDX-License-Identifier: Apache-2.0
// Which checkpoint of several to resume from, and which to remove.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fullshard::stored {

struct LastCheckpoint {
  std::string folder;  // empty: there is none
  int64_t step = 0;
  std::vector<std::string> skipped;  // newer ones, or unfinished: "step-000200: why"
};

// The newest complete checkpoint: it has a manifest, and every file that this lists with its size.
// (Contents are checked as they are read.) Names that are passed over are ignored. Not collective.
LastCheckpoint last_checkpoint(const std::string& directory,
                               const std::vector<std::string>& passed_over = {});

// Identifies the save: the folders of several hosts have the same value if they are of one save.
struct CompleteCheckpoint {
  std::string name;
  int64_t saved_at = 0;
};
// All that are complete in the same sense, the newest first.
std::vector<CompleteCheckpoint> complete_checkpoints(const std::string& directory);

// The save_number of the next manifest in this folder.
int64_t next_save_number(const std::string& directory);

// Whether a checkpoint, or a folder of several, belongs to the run in this folder: it is there, or
// behind a link there, as when checkpoints/ is on another disk.
bool is_of_run(const std::string& checkpoint, const std::string& run);

// Why a folder is not a complete checkpoint of ours, in the same sense, or is of another save;
// empty: it is one.
std::string checkpoint_problem(const std::string& folder, std::optional<int64_t> saved_at = {});

// Removes the oldest complete checkpoints named by checkpoint_name() until `num_kept` are left,
// never one of `kept_names`; and what killed runs left unfinished.
void remove_old_checkpoints(const std::string& directory, int num_kept,
                            const std::vector<std::string>& kept_names);

// Removes every checkpoint, named or numbered, complete or not, except for folders that `is_kept`
// names, and the file that names the newest.
void remove_all_checkpoints(const std::string& directory,
                            const std::function<bool(const std::string& folder)>& is_kept);

}  // namespace fullshard::stored
