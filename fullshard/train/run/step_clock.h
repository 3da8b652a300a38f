// SPDX-License-Identifier: Apache-2.0
// Where the time of a training step goes: by phase, and how much of it is communication.
#pragma once

#include <chrono>
#include <vector>

#include "fullshard/comm/recorder.h"
#include "fullshard/report/records/step_record.h"

namespace fullshard::train {

// A phase where it lay, in the recorder's seconds.
struct PhaseSpan {
  const char* name;
  double begin = 0, end = 0;
};

// One per step. The recorder is this rank's own.
class StepClock {
 public:
  explicit StepClock(const Recorder& recorder);

  // Adds the time since the last mark, less what was waited for communication, to a phase.
  void mark(double PhaseTimes::*phase);
  // What was done since the last mark belongs to no phase.
  void pass();

  double seconds() const;  // since it was made
  const PhaseTimes& phases() const { return phases_; }
  const std::vector<PhaseSpan>& spans() const { return spans_; }
  double exposed() const;        // waited for communication
  double communicating() const;  // any collective in flight; overlapping ones count once

 private:
  const Recorder& recorder_;
  std::chrono::steady_clock::time_point start_, last_;
  double waited_at_start_, waited_at_last_;
  double recorder_start_;
  double recorder_last_;
  PhaseTimes phases_;
  std::vector<PhaseSpan> spans_;
};

}  // namespace fullshard::train
