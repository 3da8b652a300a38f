// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/passes/late_vote.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

namespace fullshard::engine {
namespace {

// A rank can be one round ahead of another that still reads, not two.
constexpr int kNumSlots = 2;
constexpr const char* kWhat = "the end of a backward";

}  // namespace

LateVote::LateVote(const Communicator& everyone) : everyone_(everyone) {
  if (everyone_.shares_memory()) counters_ = everyone_.make_counters(kNumSlots);
}

// A counter says the round, and in its last bit whether its rank is late.
bool LateVote::is_anyone_late(bool am_late) {
  ++round_;
  const int slot = static_cast<int>(round_ % kNumSlots);
  counters_->publish(slot, 2 * round_ + (am_late ? 1 : 0));
  counters_->wait_for_all(slot, 2 * round_, kWhat, "");
  for (int rank = 0; rank < everyone_.size(); ++rank) {
    if (counters_->value(slot, rank) % 2 != 0) return true;
  }
  return false;
}

std::vector<bool> LateVote::ask(std::vector<bool> is_late) {
  if (everyone_.size() == 1) return is_late;
  const bool am_late = std::find(is_late.begin(), is_late.end(), true) != is_late.end();
  if (counters_ && !is_anyone_late(am_late)) return is_late;
  auto votes = at::zeros({static_cast<int64_t>(is_late.size())}, at::kLong);
  auto* flags = votes.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < is_late.size(); ++i) flags[i] = is_late[i] ? 1 : 0;
  everyone_.all_reduce(votes, ReduceOp::max, "late gradients").wait();
  for (size_t i = 0; i < is_late.size(); ++i) is_late[i] = flags[i] != 0;
  return is_late;
}

}  // namespace fullshard::engine
