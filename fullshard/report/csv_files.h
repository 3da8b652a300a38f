// SPDX-License-Identifier: Apache-2.0
// A run's values as DeepSpeed's csv_monitor lays them out: a file for each in one folder, named
// after the value with "_" for "/", that begins with "step," and the last part of the name, then a
// line for each step or number of samples. Lines end as Python's csv module ends them.
#pragma once

#include <map>
#include <memory>

#include "fullshard/report/monitor.h"
#include "fullshard/report/records/append_file.h"

namespace fullshard::report {

class CsvFiles : public Monitor {
 public:
  // In the run's own folder a new run begins with empty files. Elsewhere it adds a header and its
  // lines to the existing ones, as DeepSpeed does, so that no values are lost. A resumed run
  // continues after the last header.
  CsvFiles(std::string folder, const MonitorOptions& options);

  void add(const StepRecord& record) override;
  std::string_view name() const override { return "csv_monitor"; }
  const std::string& folder() const override { return folder_; }

 private:
  void add(const Scalar& scalar);

  std::string folder_;
  int64_t samples_per_step_;
  std::map<std::string_view, std::unique_ptr<AppendFile>> files_;  // by tag, with their headers
};

}  // namespace fullshard::report
