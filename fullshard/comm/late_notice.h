// SPDX-License-Identifier: Apache-2.0
// Names a rank that others wait for, long before they give it up: a person who sees a run stand
// still need not wait for the time limit to know whom to look at.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include "fullshard/comm/timeouts.h"

namespace fullshard::comm {

inline constexpr std::chrono::seconds kLateAfter{5};

// Thread-safe. Says the same of one rank at most once a minute.
class LateNotice {
 public:
  // "rank 0: all_gather of unit 'blocks.2' (group world)", "its last act: ..."; kNoLimit: nothing
  // is wrong: no timeout applies.
  void say(const std::string& subject, int late_rank, std::chrono::milliseconds waited,
           const std::string& last_act, std::chrono::milliseconds limit);

 private:
  using Clock = std::chrono::steady_clock;
  std::mutex mutex_;
  int rank_ = -1;
  std::optional<Clock::time_point> said_;
};

}  // namespace fullshard::comm
