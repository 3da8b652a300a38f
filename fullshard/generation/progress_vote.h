// SPDX-License-Identifier: Apache-2.0
// Ranks that make their own numbers of steps, with nothing in between that others take part in: one
// that has made its steps waits for the others as long as they make theirs. A rank that stands
// still is named.
#pragma once

#include <chrono>

#include "fullshard/comm/communicator.h"

namespace fullshard::generation {

// One thread of every rank. Every wait has the limit of a step, so that the steps of a rank may
// take as long as they like all together, and each of them no longer than that.
class ProgressVote {
 public:
  // `step_limit`: that of the communicator's calls, timeouts.step.
  ProgressVote(const Communicator& everyone, std::chrono::milliseconds step_limit);

  // Before each step, and each part of a long one. Now and then it takes part in a vote, which
  // waits until the other ranks come to one of their own calls.
  void step();
  // Returns when all ranks are here: takes part in votes until then.
  void wait_for_all();

 private:
  using Clock = std::chrono::steady_clock;
  bool all_are_done(bool is_done);

  Communicator everyone_;
  Clock::duration longest_pause_;
  Clock::time_point last_step_ = Clock::now(), last_vote_ = last_step_;
};

}  // namespace fullshard::generation
