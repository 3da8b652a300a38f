// SPDX-License-Identifier: Apache-2.0
// How long ranks wait for a rank that is alive but late. One that is gone ends every wait.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace fullshard {

struct Timeouts {
  std::chrono::milliseconds init = std::chrono::minutes(5);         // all ranks have met
  std::chrono::milliseconds step = std::chrono::minutes(10);        // a rank comes to a collective
  std::chrono::milliseconds checkpoint = std::chrono::minutes(30);  // and to one of a save or load
};

// Which of them a call keeps. `none` is for what a user or a disk does in between: that may take as
// long as it takes.
enum class TimeLimit { init, step, checkpoint, none };

// Later than any run ends, and far from what a clock can count to.
inline constexpr std::chrono::milliseconds kNoLimit = std::chrono::hours(24 * 365 * 10);

constexpr std::chrono::milliseconds length_of(TimeLimit limit, const Timeouts& timeouts) {
  switch (limit) {
    case TimeLimit::init:
      return timeouts.init;
    case TimeLimit::step:
      return timeouts.step;
    case TimeLimit::checkpoint:
      return timeouts.checkpoint;
    case TimeLimit::none:
      break;
  }
  return kNoLimit;
}

// The name of its setting.
constexpr std::string_view name_of(TimeLimit limit) {
  switch (limit) {
    case TimeLimit::init:
      return "init";
    case TimeLimit::step:
      return "step";
    case TimeLimit::checkpoint:
      return "checkpoint";
    case TimeLimit::none:
      break;
  }
  return "none";
}

// "raise timeouts.step (--step-timeout) if it is only slow"
inline std::string remedy_of(std::string_view limit) {
  const std::string name(limit);
  return "raise timeouts." + name + " (--" + name + "-timeout) if it is only slow";
}

}  // namespace fullshard
