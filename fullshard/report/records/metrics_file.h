// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl as a file: StepRecords in the order of their steps, each step once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/report/records/append_file.h"
#include "fullshard/report/records/run_totals.h"
#include "fullshard/report/records/step_record.h"

namespace fullshard::report {

struct MetricsReading {
  std::vector<StepRecord> steps{};       // for a long run those that stand out (step_history.h)
  std::optional<RunTotals> all_lines{};  // of all steps, if `steps` are not all
  std::optional<int64_t> first_step{};   // done before the first of them, if that is known
  std::vector<std::string> problems{};  // "FILE:LINE: …" of lines that were left out, the first few
  int64_t num_left_out = 0;
  bool is_half_written = false;  // the last line has no end yet; it is not among the steps

  RunTotals totals() const;
};

// Continues after bad lines. A missing file has no steps. However long the file, reading takes no
// more than a few megabytes: a rank reads it every few seconds while it trains. `first_step`, of
// run.json: if the lines begin after it, they are all from a run that resumed there.
MetricsReading read_metrics(const std::string& path, std::optional<int64_t> first_step = {});

// Appends lines; each is in the file when append() returns. For one thread.
class MetricsWriter {
 public:
  // Keeps the lines up to `last_step`, where a resumed run begins, and removes those that a longer
  // run wrote before it. 0: a file from the start. Throws Error of kind input when a line to be
  // kept cannot be read.
  explicit MetricsWriter(const std::string& path, int64_t last_step = 0);

  // The totals of the lines that were kept.
  const RunTotals& kept() const { return kept_; }

  // Steps must rise. When the disk is full: throws Error, and leaves no partial line in the file.
  void append(const StepRecord& record);

 private:
  void cut_after(int64_t last_step);

  AppendFile file_;
  RunTotals kept_;
  int64_t last_step_;
};

}  // namespace fullshard::report
