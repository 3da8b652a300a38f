// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/run_start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/report/records/run_file.h"
#include "fullshard/report/records/run_record.h"

namespace fullshard::report {
namespace {

// A record that cannot be read belongs to a run that the user may want to keep.
bool is_finished(const std::string& folder) {
  try {
    return read_run_record(folder + "/run.json").status == RunStatus::finished;
  } catch (const Error&) {
    return true;
  }
}

int64_t last_sign_of_life(const std::string& folder) {
  return static_cast<int64_t>(
      std::max(last_write_time(folder + "/run.json"), last_write_time(folder + "/metrics.jsonl")));
}

}  // namespace

void check_run_start(const std::string& folder, const RunStart& start) {
  if (start.overwrites || start.resumes || !base::is_file(folder + "/run.json")) return;
  const bool is_done = is_finished(folder);
  // A run that failed before its first step leaves nothing worth keeping.
  if (!is_done && read_end_of_file(folder + "/metrics.jsonl", 1).empty()) return;
  if (!is_done && start.may_begin_again) return;
  fail_as(ErrorKind::usage,
          "{}: holds a run already{}; choose another --output, or add --overwrite", folder,
          start.may_begin_again ? ", which is done and left no checkpoint to resume" : "");
}

void remove_unfinished_records(const std::string& folder) {
  remove_unfinished_files(folder, {"run.json", "report.html", "run.replaced", "given_config.yaml",
                                   "given_config.json"});
}

void remove_run_records(const std::string& folder) {
  for (const char* name :
       {"run.json", "metrics.jsonl", "report.html", "given_config.yaml", "given_config.json"}) {
    ::unlink(fmt::format("{}/{}", folder, name).c_str());
  }
}

bool close_dead_run(const std::string& folder) {
  if (find_owner(folder).state != OwnerState::gone) return false;
  try {
    const RunLock lock(folder);  // so that no other run starts meanwhile
    return close_dead_run(folder, lock);
  } catch (const Error&) {
    return false;
  }
}

bool close_dead_run(const std::string& folder, const RunLock& lock) {
  return lock.previous() && close_run_record(folder, RunStatus::failed, lock.previous()->death(),
                                             last_sign_of_life(folder));
}

}  // namespace fullshard::report
