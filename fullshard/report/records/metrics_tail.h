// SPDX-License-Identifier: Apache-2.0
// The records that were added to a metrics.jsonl since the last read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/report/records/step_record.h"

namespace fullshard::report {

// For one thread.
class MetricsTail {
 public:
  explicit MetricsTail(std::string path) : path_(std::move(path)) {}

  // Reads whole lines only; those that cannot be parsed are skipped. A file that has become shorter
  // was cut by a run that resumes, and is read from its beginning again; `has_restarted` says so.
  std::vector<StepRecord> read();
  bool has_restarted() const { return has_restarted_; }

 private:
  std::string path_;
  int64_t read_bytes_ = 0;
  bool has_restarted_ = false;
};

}  // namespace fullshard::report
