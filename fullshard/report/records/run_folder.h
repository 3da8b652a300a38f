// SPDX-License-Identifier: Apache-2.0
// Everything that a run has left so far, for a report. Any of it may be missing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/report/records/metrics_file.h"
#include "fullshard/report/records/run_lock.h"
#include "fullshard/report/records/run_record.h"

namespace fullshard::report {

struct RankLog {
  int rank = 0;
  std::vector<std::string> lines{};  // the last ones
  bool has_more = false;             // above `lines`
};

struct RunFolder {
  std::string path{};
  std::optional<RunRecord> record{};
  MetricsReading metrics{};
  std::vector<RankLog> logs{};  // by rank, the first ones
  int num_logs = 0;
  std::vector<std::string> problems{};  // what could not be read
  double last_write = 0;                // seconds since 1970, of the newest file above; 0: none

  OwnerState owner = OwnerState::none;

  // Whether the record says that it is running, and a process owns it; if that is not known:
  // whether it wrote something shortly before `now`.
  bool is_live(double now) const;
};

// Throws Error of kind input only when there is no such folder. A record that says "running"
// although the run's process has ended is returned as failed, with the reason.
RunFolder read_run_folder(const std::string& path);

}  // namespace fullshard::report
