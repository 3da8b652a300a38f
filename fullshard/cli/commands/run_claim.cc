// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/commands/run_claim.h"

#include <fmt/format.h>

#include <ctime>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/real_path.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/report/records/run_record.h"
#include "fullshard/report/records/run_start.h"
#include "fullshard/stored/last_checkpoint.h"

namespace fullshard::cli {
namespace {

std::string checkpoints_of(const RunOptions& options) { return options.output + "/checkpoints"; }

// Rank 0 decides in the same way, when all ranks are there.
report::RunStart start_of(const RunOptions& options) {
  const bool looks = options.resume == "auto";
  return {.overwrites = options.overwrite,
          .resumes = looks ? !stored::last_checkpoint(checkpoints_of(options)).folder.empty()
                           : base::lies_in(options.resume, options.output),
          .may_begin_again = looks};
}

bool says_interrupted(const std::string& folder) {
  try {
    return read_run_record(folder + "/run.json").status == RunStatus::interrupted;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

RunClaim::RunClaim(const RunOptions& options, LaunchFlags& launch) : options_(options) {
  const bool starts_rank_zero = launch.starts_rank_zero();
  if (!starts_rank_zero) launch.let_logs_wait();
  if (starts_rank_zero) {
    lock_.emplace(options.output);
    if (!lock_->warning().empty()) base::say(fmt::format("warning: {}\n", lock_->warning()));
    report::close_dead_run(options.output, *lock_);
    launch.keep_open(lock_->descriptor());
    launch.add_variable(
        fmt::format("{}={}", base::LauncherEnvironment::kRunLock, lock_->descriptor()));
  } else if (launch.is_over_ssh() && base::is_folder(options.output)) {
    const report::RunLock looked_at(options.output);  // rank 0 takes it, on its own host
    report::close_dead_run(options.output, looked_at);
  } else {
    return;  // rank 0 looks, where it is
  }
  report::check_run_start(options.output, start_of(options));
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
    base::say(
        fmt::format("{}; {}\n", result.message,
                    last.empty() ? "no checkpoint was written" : "the last checkpoint is " + last));
  } else if (!says_interrupted(options_.output)) {
    base::say(result.message + " before it had begun\n");
  }
}

}  // namespace fullshard::cli
