// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/step_clock.h"

#include <algorithm>

namespace fullshard::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

double waited(const Recorder& recorder) {
  double sum = 0;
  for (int operation = 0; operation < kNumOperations; ++operation) {
    sum += recorder.totals(static_cast<Operation>(operation)).waited;
  }
  return sum;
}

const char* name_of(double PhaseTimes::*phase) {
  if (phase == &PhaseTimes::data_s) return "data";
  if (phase == &PhaseTimes::forward_s) return "forward";
  return phase == &PhaseTimes::backward_s ? "backward" : "optimizer";
}

}  // namespace

StepClock::StepClock(const Recorder& recorder)
    : recorder_(recorder),
      start_(Clock::now()),
      last_(start_),
      waited_at_start_(waited(recorder)),
      waited_at_last_(waited_at_start_),
      recorder_start_(recorder.now()),
      recorder_last_(recorder_start_) {}

void StepClock::mark(double PhaseTimes::*phase) {
  const auto before = last_;
  const double waited_before = waited_at_last_, began = recorder_last_;
  pass();
  spans_.push_back({name_of(phase), began, recorder_last_});
  phases_.*phase +=
      std::max(0.0, seconds_between(before, last_) - (waited_at_last_ - waited_before));
}

void StepClock::pass() {
  last_ = Clock::now();
  waited_at_last_ = waited(recorder_);
  recorder_last_ = recorder_.now();
}

double StepClock::seconds() const { return seconds_between(start_, Clock::now()); }

double StepClock::exposed() const { return waited(recorder_) - waited_at_start_; }

double StepClock::communicating() const { return recorder_.in_flight_since(recorder_start_); }

}  // namespace fullshard::train
