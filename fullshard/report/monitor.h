// SPDX-License-Identifier: Apache-2.0
// What metrics.jsonl says, as the files of other programs: TensorBoard's events (event_file.h) and
// DeepSpeed's CSV files (csv_files.h). docs/report.md has the names of the values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/report/records/step_record.h"

namespace fullshard::report {

// One monitor's keys of a configuration.
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
  int64_t first_step = 0;        // steps that an earlier run did, which this one resumes
  int64_t samples_per_step = 1;  // of all ranks
};

// Rank 0's. Adds a record's values to its files, where they are when add() returns. One thread.
class Monitor {
 public:
  virtual ~Monitor() = default;
  // An Error of kind failed where there is no room.
  virtual void add(const StepRecord& record) = 0;
  virtual std::string_view name() const = 0;  // the key that asks for it
  virtual const std::string& folder() const = 0;
};

// Those that are asked for, with their folders made. What an earlier run wrote after `first_step`
// is removed.
std::vector<std::unique_ptr<Monitor>> open_monitors(const MonitorOptions& options);

// A value, where it stands on the horizontal axis, and its name.
struct Scalar {
  std::string_view tag;
  double value = 0;
  int64_t at = 0;
};

// Over steps, named as the Trainer names them.
std::vector<Scalar> scalars_over_steps(const StepRecord& record);
// Over samples, named as DeepSpeed's own monitors name them.
std::vector<Scalar> scalars_over_samples(const StepRecord& record, int64_t samples_per_step);
bool is_over_samples(std::string_view tag);
// Every tag that a record can have.
std::vector<std::string_view> all_tags();

}  // namespace fullshard::report
