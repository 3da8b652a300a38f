// SPDX-License-Identifier: Apache-2.0
// How long a wait has lasted, by looks at it. Processes that are stopped, as those of a frozen
// container or a suspended job are, do not look: what is awaited was stopped with them as a rule,
// and is not late for it.
#pragma once

#include <algorithm>
#include <chrono>

namespace fullshard::comm {

class AwakeTime {
 public:
  using Clock = std::chrono::steady_clock;

  // Between two looks; what lies beyond it does not count. Whoever waits looks far more often.
  static constexpr std::chrono::milliseconds kMostBetweenLooks{1000};

  explicit AwakeTime(Clock::time_point now = Clock::now()) : looked_(now) {}

  // A look: the time since the beginning.
  std::chrono::milliseconds passed(Clock::time_point now = Clock::now()) {
    passed_ += std::min<Clock::duration>(now - looked_, kMostBetweenLooks);
    looked_ = now;
    return std::chrono::duration_cast<std::chrono::milliseconds>(passed_);
  }

 private:
  Clock::time_point looked_;
  Clock::duration passed_{0};
};

}  // namespace fullshard::comm
