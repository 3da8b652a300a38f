// SPDX-License-Identifier: Apache-2.0
// A run's steps summarised in a few numbers, and the table at the end of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/report/records/even_sample.h"
#include "fullshard/report/records/step_record.h"

namespace fullshard::report {

struct BestLoss {
  double loss = 0;
  int64_t step = 0;
};

// Takes the same memory for a run of any length.
class RunTotals {
 public:
  RunTotals() = default;
  // For a run that begins after this many steps; absent: not known.
  explicit RunTotals(std::optional<int64_t> steps_before) : steps_before_(steps_before) {}

  // Takes records in the order of steps. If steps before a record were not recorded, they are
  // assumed to be like it; if it is not known where the run began, the first record stands for as
  // many steps as the second.
  void add(const StepRecord& record);

  int64_t num_steps() const { return num_steps_; }
  // The steps done before the first record: by another run, whose checkpoint this one began with,
  // or by a part of it that recorded none.
  int64_t first_step() const;
  int64_t num_skipped() const { return num_skipped_; }
  int64_t tokens() const { return tokens_; }
  double seconds() const { return seconds_; }  // inside steps
  int64_t device_peak_bytes() const { return device_peak_bytes_; }
  int64_t host_peak_bytes() const { return host_peak_bytes_; }
  const std::optional<StepRecord>& last() const { return last_; }
  std::optional<BestLoss> best() const { return best_; }  // among finite ones
  std::optional<BestLoss> last_evaluation() const { return last_evaluation_; }
  std::optional<BestLoss> best_evaluation() const { return best_evaluation_; }
  // Exact for the first thousands of steps, then of an even sample of them.
  double median_tokens_per_s() const;
  std::optional<double> median_mfu() const;
  double median_step_s() const;

 private:
  void count(const StepRecord& record, int64_t steps);

  std::optional<int64_t> steps_before_;
  int64_t num_records_ = 0;
  int64_t num_steps_ = 0;
  int64_t num_skipped_ = 0;
  int64_t tokens_ = 0;
  double seconds_ = 0;
  int64_t device_peak_bytes_ = 0;
  int64_t host_peak_bytes_ = 0;
  std::optional<StepRecord> last_;
  std::optional<BestLoss> best_, last_evaluation_, best_evaluation_;
  EvenSample tokens_per_s_, mfu_, step_s_;
};

// The text next to a clock that was started after this many steps: "1:02 inside steps". For a
// resumed run it says that the clock did not run for all of them.
std::string clock_note(const RunTotals& totals, int64_t first_step);

// By the wall clock, including the time between steps.
struct Elapsed {
  double seconds = 0;
  int64_t first_step = 0;  // steps done when it began
};

// Rows "name  value", ended by line breaks. `places` are more rows at the end: where files are.
std::string summary_table(const RunTotals& totals, const Elapsed& elapsed,
                          const std::vector<std::pair<std::string, std::string>>& places);

}  // namespace fullshard::report
