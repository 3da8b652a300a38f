// SPDX-License-Identifier: Apache-2.0
// The launcher's side of `train --output DIR`: the folder is claimed and looked at before anything
// in it is opened, and what ended the run is written down when no rank could do it.
#pragma once

#include <cstdint>
#include <optional>

#include "fullshard/cli/flags/launch_flags.h"
#include "fullshard/config/run_options.h"
#include "fullshard/report/records/run_lock.h"

namespace fullshard::cli {

class RunClaim {
 public:
  // Errors of kind usage: a live run owns the folder, or it holds one that must stay. The lock goes
  // on to the ranks where rank 0 starts on this host; elsewhere rank 0 takes it, and the logs of an
  // older run stay until it has looked at the folder.
  RunClaim(const RunOptions& options, LaunchFlags& launch);

  // After the launch: closes run.json where it still says that the run goes on.
  void conclude(const launch::LaunchResult& result) const;

 private:
  const RunOptions& options_;
  const int64_t start_;  // seconds since 1970
  std::optional<report::RunLock> lock_;
};

}  // namespace fullshard::cli
