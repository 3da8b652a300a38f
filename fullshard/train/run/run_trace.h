// SPDX-License-Identifier: Apache-2.0
// The timeline of a run's last steps on one rank: phases as the step's clock saw them, collectives
// as the recorder did.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "fullshard/comm/recorder.h"
#include "fullshard/report/trace_events.h"
#include "fullshard/train/run/step_clock.h"

namespace fullshard::train {

class RunTrace {
 public:
  // The phases of a step that is over.
  void add(int64_t step, const std::vector<PhaseSpan>& phases);
  // With what the recorder has kept since the first of those phases. A track for each operation;
  // where calls of one overlap, they have as many as it takes.
  std::vector<report::TraceSpan> spans(const Recorder& recorder) const;

 private:
  struct OfStep {
    int64_t step;
    std::vector<PhaseSpan> phases;
  };
  std::deque<OfStep> steps_;  // the newest
};

}  // namespace fullshard::train
