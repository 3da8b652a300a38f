// SPDX-License-Identifier: Apache-2.0
// A running run as a few lines on a terminal.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/report/records/run_record.h"
#include "fullshard/report/records/step_record.h"

namespace fullshard::report {

// "▁▂▄█": the values from the least to the greatest; a space for a value that is not finite.
std::string sparkline(const std::vector<double>& values);

// Takes plain data, returns text. For one thread.
class WatchView {
 public:
  explicit WatchView(std::string name) : name_(std::move(name)) {}

  void add(const StepRecord& record);
  void clear() { newest_.clear(); }  // the run began again
  const std::optional<StepRecord>& last() const { return last_; }

  // Each at most `width` columns. `silence` is the number of seconds since the last write.
  std::vector<std::string> lines(const RunRecord& run, double silence, int width) const;
  // Seconds to the end at the speed of the newest steps.
  std::optional<double> seconds_left(int64_t num_steps) const;

 private:
  std::string name_;
  std::optional<StepRecord> last_;
  std::deque<StepRecord> newest_;
};

}  // namespace fullshard::report
