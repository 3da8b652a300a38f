// SPDX-License-Identifier: Apache-2.0
// Whether a run may start in a folder that may hold another one, and what happens to that one.
#pragma once

#include <string>

#include "fullshard/report/records/run_lock.h"

namespace fullshard::report {

struct RunStart {
  bool overwrites = false;  // --overwrite
  bool resumes = false;     // continues from a checkpoint
  // --resume auto, or ranks that were started again: a run without a checkpoint starts from the
  // beginning.
  bool may_begin_again = false;
};

// An Error of kind usage when the folder holds a run that must stay. Changes nothing.
void check_run_start(const std::string& folder, const RunStart& start);

// Removes unfinished files that a killed run has left; called by the folder's owner.
void remove_unfinished_records(const std::string& folder);

// Removes run.json, metrics.jsonl, the report and the copied configuration of the replaced run.
void remove_run_records(const std::string& folder);

// Closes a record that says "running" although its owner has ended as failed, with what is known of
// the owner. Leaves a folder alone that cannot be written. Returns whether it was closed.
bool close_dead_run(const std::string& folder);
// The same for the next owner, who holds the lock.
bool close_dead_run(const std::string& folder, const RunLock& lock);

}  // namespace fullshard::report
