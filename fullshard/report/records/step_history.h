// SPDX-License-Identifier: Apache-2.0
// The steps of a run of any length in bounded memory, for its charts: all of them at first, later
// those that stand out in their stretch of steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fullshard/report/records/step_record.h"

namespace fullshard::report {

class StepHistory {
 public:
  // Holds fewer than twice `limit` (16 or more) records.
  explicit StepHistory(size_t limit = 4096);

  // Takes records in the order of steps.
  void add(const StepRecord& record);
  // In that order. Every stretch, all of one width, keeps its first record, its last evaluation,
  // one loss that is not finite, and the least and the greatest loss, norm and speed; the last
  // record of all is kept too.
  const std::vector<StepRecord>& steps() const { return steps_; }
  bool is_thinned() const { return width_ > 1; }

 private:
  void thin();

  size_t limit_;
  int64_t width_ = 1;  // number of steps in a stretch
  std::vector<StepRecord> steps_;
};

}  // namespace fullshard::report
