// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/shm/shm_rank.h"

#include <algorithm>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::comm {
namespace {

class CallCondition final : public Condition {
 public:
  CallCondition(ShmRank& rank, ShmCall& call, ShmCall::Stage stage)
      : rank_(rank), call_(call), stage_(stage) {}

  bool is_met() override { return rank_.progress().advance(call_, stage_); }
  bool help() override { return rank_.help(); }
  void look_around(std::chrono::milliseconds waited) override {
    const auto missing = rank_.progress().look([&] { return call_.awaited(); });
    rank_.watch().look_for(missing, call_.act(), waited, [&](int rank) {
      return rank_.progress().look([&] { return call_.is_awaited(rank); });
    });
  }

 private:
  ShmRank& rank_;
  ShmCall& call_;
  ShmCall::Stage stage_;
};

}  // namespace

void ShmProgress::add(std::shared_ptr<ShmCall> call) {
  const std::lock_guard lock(mutex_);
  drop_retired();
  calls_.push_back(std::move(call));
}

bool ShmProgress::advance(ShmCall& call, ShmCall::Stage stage) {
  const std::lock_guard lock(mutex_);
  while (call.advance()) {
  }
  return call.has_reached(stage);
}

bool ShmProgress::advance_any() {
  const std::lock_guard lock(mutex_);
  bool advanced = false;
  for (size_t i = 0; i < calls_.size() && !advanced; ++i) advanced = calls_[i]->advance();
  return advanced;
}

// Calls that completed early only lack that their peers have read them.
void ShmProgress::drop_retired() {
  std::erase_if(calls_, [](const std::shared_ptr<ShmCall>& call) {
    if (call->has_reached(ShmCall::Stage::complete)) call->advance();
    return call->has_reached(ShmCall::Stage::retired);
  });
}

ShmRank::ShmRank(std::shared_ptr<const ShmMemory> memory, int rank, const Timeouts& timeouts,
                 std::vector<ShmDescriptor> lifelines, std::vector<int> names)
    : memory_(std::move(memory)),
      rank_(rank),
      arena_(std::make_shared<ShmArena>(memory_->arena(rank), fmt::format("rank {}", rank))),
      watch_(memory_->block(), rank, memory_->num_ranks(), timeouts, std::move(lifelines),
             std::move(names)),
      patience_(Patience::for_ranks(memory_->num_ranks())) {}

bool ShmRank::help() {
  if (!progress_.advance_any()) return false;
  ring(memory_->block().doorbells[rank_]);
  return true;
}

void ShmRank::wait(Condition& condition, bool is_beside) {
  Doorbell& bell = memory_->block().doorbells[rank_];
  if (is_beside) return wait_at(bell, patience_, condition);
  try {
    wait_at(bell, patience_, condition);
  } catch (...) {
    watch_.stop_waiting();
    throw;
  }
  watch_.stop_waiting();
}

void ShmRank::wait(ShmCall& call, ShmCall::Stage stage) {
  CallCondition condition(*this, call, stage);
  wait(condition, call.act().is_beside);
  if (stage == ShmCall::Stage::complete) watch_.note(call.act(), CallProgress::finished);
}

}  // namespace fullshard::comm
