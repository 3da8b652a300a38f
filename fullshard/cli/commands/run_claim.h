// SPDX-License-Identifier: Apache-2.0
// The launcher's side of `train --output DIR`: it claims and checks the folder before anything in
// it is opened, and records what ended the run if no rank could do so.
#pragma once

#include <cstdint>
#include <optional>

#include "fullshard/cli/flags/launch_flags.h"
#include "fullshard/config/run_options.h"
#include "fullshard/report/records/run_lock.h"

namespace fullshard::cli {

class RunClaim {
 public:
  // Errors of kind usage: a live run owns the folder, or it holds a run that must be kept. The lock
  // is passed to the ranks if rank 0 starts on this host; otherwise rank 0 takes it, and the logs
  // of an older run stay until it has checked the folder.
  RunClaim(const RunOptions& options, LaunchFlags& launch);

  // After the launch: closes run.json if it still says that the run is running.
  void conclude(const launch::LaunchResult& result) const;

 private:
  const RunOptions& options_;
  const int64_t start_;  // seconds since 1970
  std::optional<report::RunLock> lock_;
};

}  // namespace fullshard::cli
