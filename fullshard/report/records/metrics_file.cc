// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/metrics_file.h"

#include <fmt/format.h>

#include <fstream>
#include <optional>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/report/records/step_history.h"

namespace fullshard::report {
namespace {

constexpr size_t kMostProblems = 20;

// The lines of a file with their numbers (from 1) and where they begin.
class Lines {
 public:
  explicit Lines(const std::string& path) {
    if (base::is_file(path)) file_.open(path, std::ios::binary);
  }

  bool next() {
    start_ = end_;
    if (!std::getline(file_, line_)) return false;
    is_whole_ = !file_.eof();
    end_ += static_cast<int64_t>(line_.size()) + (is_whole_ ? 1 : 0);
    ++number_;
    return true;
  }
  const std::string& line() const { return line_; }
  bool is_whole() const { return is_whole_; }  // ended by a line break
  int64_t number() const { return number_; }
  int64_t start() const { return start_; }

 private:
  std::ifstream file_;
  std::string line_;
  bool is_whole_ = false;
  int64_t number_ = 0;
  int64_t start_ = 0;
  int64_t end_ = 0;
};

StepRecord parse_next(const Lines& lines, const std::string& path, int64_t previous) {
  const std::string where = fmt::format("{}:{}", path, lines.number());
  const StepRecord record = parse_step_record(lines.line(), where);
  if (record.step <= previous) {
    fail_as(ErrorKind::input, "{}: step {} after step {}, expected steps that rise", where,
            record.step, previous);
  }
  return record;
}

}  // namespace

RunTotals MetricsReading::totals() const {
  if (all_lines) return *all_lines;
  RunTotals totals(first_step);
  for (const StepRecord& step : steps) totals.add(step);
  return totals;
}

MetricsReading read_metrics(const std::string& path, std::optional<int64_t> first_step) {
  MetricsReading reading;
  StepHistory history;
  RunTotals totals;
  int64_t previous = 0;
  for (Lines lines(path); lines.next();) {
    if (!lines.is_whole()) {
      reading.is_half_written = true;
      break;
    }
    try {
      const StepRecord record = parse_next(lines, path, previous);
      if (previous == 0 && first_step && record.step > *first_step) {
        reading.first_step = first_step;
        totals = RunTotals(first_step);
      }
      history.add(record);
      totals.add(record);
      previous = record.step;
    } catch (const Error& error) {
      ++reading.num_left_out;
      if (reading.problems.size() < kMostProblems) reading.problems.emplace_back(error.what());
    }
  }
  reading.steps = history.steps();
  if (history.is_thinned()) reading.all_lines = std::move(totals);
  return reading;
}

MetricsWriter::MetricsWriter(const std::string& path, int64_t last_step)
    : file_(path), last_step_(last_step) {
  cut_after(last_step);
}

void MetricsWriter::cut_after(int64_t last_step) {
  std::optional<int64_t> cut;
  int64_t previous = 0;
  for (Lines lines(file_.path()); !cut && last_step > 0 && lines.next();) {
    if (!lines.is_whole()) {
      cut = lines.start();
      break;
    }
    const StepRecord record = parse_next(lines, file_.path(), previous);
    previous = record.step;
    if (previous > last_step) {
      cut = lines.start();
    } else {
      kept_.add(record);
    }
  }
  if (last_step <= 0 && file_.bytes() > 0) cut = 0;
  if (cut) file_.cut(*cut);
}

void MetricsWriter::append(const StepRecord& record) {
  check(record.step > last_step_, "{}: step {} after step {}, expected steps that rise",
        file_.path(), record.step, last_step_);
  if (const auto cause = file_.append(to_json_line(record) + "\n")) {
    fail_as(ErrorKind::failed,
            "{}: step {} cannot be written: {}; make room and resume from the last checkpoint",
            file_.path(), record.step, *cause);
  }
  last_step_ = record.step;
}

}  // namespace fullshard::report
