// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/progress_vote.h"

#include <ATen/ops/full.h>

#include <algorithm>

namespace fullshard::generation {
namespace {

using std::chrono::steady_clock;

// A vote waits for the longest step under way: between two lie so many steps that this costs
// little.
constexpr int kStepsPerVote = 20;
constexpr steady_clock::duration kShortestPause = std::chrono::seconds(1);
// Others wait for a pause and a step, which must come to less than the limit.
constexpr int kPausesPerLimit = 8;

}  // namespace

ProgressVote::ProgressVote(const Communicator& everyone, std::chrono::milliseconds step_limit)
    : everyone_(everyone), longest_pause_(step_limit / kPausesPerLimit) {}

void ProgressVote::step() {
  if (everyone_.size() == 1) return;
  const auto now = Clock::now();
  const auto pause = std::max(kShortestPause, kStepsPerVote * (now - last_step_));
  last_step_ = now;
  if (now - last_vote_ < std::min(pause, longest_pause_)) return;
  all_are_done(false);
}

void ProgressVote::wait_for_all() {
  if (everyone_.size() == 1) return;
  while (!all_are_done(true)) continue;
}

bool ProgressVote::all_are_done(bool is_done) {
  auto least = at::full({1}, static_cast<int64_t>(is_done), at::TensorOptions().dtype(at::kLong));
  everyone_.all_reduce(least, ReduceOp::min, "progress of generation").wait();
  last_step_ = last_vote_ = Clock::now();
  return least.item<int64_t>() == 1;
}

}  // namespace fullshard::generation
