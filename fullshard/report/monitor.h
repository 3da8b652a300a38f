// SPDX-License-Identifier: Apache-2.0
// Writes the values of metrics.jsonl as files of other programs: TensorBoard's events
// (event_file.h) and DeepSpeed's CSV files (csv_files.h). docs/report.md has the names of the
// values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/report/records/step_record.h"

namespace fullshard::report {

// The configuration keys of one monitor.
struct MonitorSettings {
  bool is_enabled = false;
  std::string output_path{};  // empty: in the run's own folder
  std::string job_name{};     // the folder below it; empty: none

  bool operator==(const MonitorSettings&) const = default;
};

struct MonitorOptions {
  MonitorSettings tensorboard{};
  MonitorSettings csv{};
  std::string run_folder{};
  int64_t first_step = 0;        // steps of an earlier run, which this one resumes
  int64_t samples_per_step = 1;  // of all ranks
};

// For rank 0. Adds a record's values to its files; they are written when add() returns. One thread.
class Monitor {
 public:
  virtual ~Monitor() = default;
  // Throws Error of kind failed when there is no room.
  virtual void add(const StepRecord& record) = 0;
  virtual std::string_view name() const = 0;  // the key that enables it
  virtual const std::string& folder() const = 0;
};

// The enabled monitors, with their folders created. Removes what an earlier run wrote after
// `first_step`.
std::vector<std::unique_ptr<Monitor>> open_monitors(const MonitorOptions& options);

// A value, its position on the horizontal axis, and its name.
struct Scalar {
  std::string_view tag;
  double value = 0;
  int64_t at = 0;
};

// Values over steps, named as in the Trainer.
std::vector<Scalar> scalars_over_steps(const StepRecord& record);
// Values over samples, named as in DeepSpeed's own monitors.
std::vector<Scalar> scalars_over_samples(const StepRecord& record, int64_t samples_per_step);
bool is_over_samples(std::string_view tag);
// Every tag that a record can have.
std::vector<std::string_view> all_tags();

}  // namespace fullshard::report
