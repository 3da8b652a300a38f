// SPDX-License-Identifier: Apache-2.0
// Whether a run may start in a folder that may hold another one, and what becomes of that.
#pragma once

#include <string>

#include "fullshard/report/records/run_lock.h"

namespace fullshard::report {

struct RunStart {
  bool overwrites = false;  // --overwrite
  bool resumes = false;     // a checkpoint is gone on from
  // --resume auto, or ranks that were started again: a run that came to no checkpoint begins anew.
  bool may_begin_again = false;
};

// An Error of kind usage when the folder holds a run that must stay. Changes nothing.
void check_run_start(const std::string& folder, const RunStart& start);

// What a run that was killed has left of them unfinished; by the folder's owner.
void remove_unfinished_records(const std::string& folder);

// run.json, metrics.jsonl, the report and the copied configuration of the run that is replaced.
void remove_run_records(const std::string& folder);

// A record that says "running" although its owner has ended is closed as failed, with what is known
// of the owner. A folder that cannot be written is left alone. Whether it was closed.
bool close_dead_run(const std::string& folder);
// The same for the owner's successor, who holds the lock.
bool close_dead_run(const std::string& folder, const RunLock& lock);

}  // namespace fullshard::report
