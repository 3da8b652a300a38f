// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/commands/run_claim.h"

#include <fmt/format.h>

#include <ctime>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/report/records/run_record.h"
#include "fullshard/report/records/run_start.h"
#include "fullshard/stored/last_checkpoint.h"

namespace fullshard::cli {
namespace {

std::string checkpoints_of(const RunOptions& options) { return options.output + "/checkpoints"; }

// Rank 0 decides in the same way, once all ranks have met.
report::RunStart start_of(const RunOptions& options) {
  const bool looks = options.resume == "auto";
  return {.overwrites = options.overwrite,
          .resumes = looks ? !stored::last_checkpoint(checkpoints_of(options)).folder.empty()
                           : stored::is_of_run(options.resume, options.output),
          .may_begin_again = looks};
}

// The status of a run that began then or later: the folder may still hold an older run.
std::optional<RunStatus> status_since(int64_t start, const std::string& folder) {
  try {
    const RunRecord record = read_run_record(folder + "/run.json");
    return record.started >= start ? std::optional(record.status) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

RunClaim::RunClaim(const RunOptions& options, LaunchFlags& launch)
    : options_(options), start_(std::time(nullptr)) {
  const bool starts_rank_zero = launch.starts_rank_zero();
  // If a restarted job continues here, the run in the folder is its own. The ranks find that out
  // once they have met.
  const bool may_come_back = launch.may_come_back();
  if (!starts_rank_zero || may_come_back) launch.let_logs_wait();
  if (starts_rank_zero) {
    lock_.emplace(options.output);
    if (!lock_->warning().empty()) base::say(fmt::format("warning: {}\n", lock_->warning()));
    report::close_dead_run(options.output, *lock_);
    launch.keep_open(lock_->descriptor());
    launch.add_variable(
        fmt::format("{}={}", base::LauncherEnvironment::kRunLock, lock_->descriptor()));
  } else if (launch.is_over_ssh() && base::is_folder(options.output)) {
    const report::RunLock looked_at(options.output);  // rank 0 takes the lock, on its own host
    report::close_dead_run(options.output, looked_at);
  } else {
    return;  // rank 0 checks the folder, on its host
  }
  if (!may_come_back) report::check_run_start(options.output, start_of(options));
}

void RunClaim::conclude(const launch::LaunchResult& result) const {
  if (!lock_) return;
  const bool ended_well = result.status == 0;
  const auto status = result.interrupted ? RunStatus::interrupted : RunStatus::failed;
  const bool was_open =
      !ended_well && close_run_record(options_.output, status, result.message, std::time(nullptr));
  if (!result.interrupted || ended_well) return;
  if (was_open) {
    const std::string last = stored::last_checkpoint(checkpoints_of(options_)).folder;
    // The reason why a rank failed has already been printed.
    base::say(
        fmt::format("{}{}\n", result.failed_rank ? "" : result.message + "; ",
                    last.empty() ? "no checkpoint was written" : "the last checkpoint is " + last));
    return;
  }
  const auto status_there = status_since(start_, options_.output);
  if (status_there == RunStatus::finished) base::say(result.message + " when it was done\n");
  if (!status_there) base::say(result.message + " before it had begun\n");
}

}  // namespace fullshard::cli
