// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/shm/shm_counters.h"

#include <utility>
#include <vector>

#include "fullshard/base/error.h"

namespace fullshard::comm {
namespace {

class CounterCondition final : public Condition {
 public:
  CounterCondition(ShmRank& rank, const ShmGroup& group, const ShmCounters& counters, int slot,
                   uint64_t value, const Act& act)
      : rank_(rank), group_(group), counters_(counters), slot_(slot), value_(value), act_(act) {}

  bool is_met() override {
    for (; reached_ < group_.size(); ++reached_) {
      if (is_behind(reached_)) return false;
    }
    return true;
  }
  bool help() override { return rank_.help(); }
  void look_around(std::chrono::milliseconds waited) override {
    std::vector<int> missing;
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (is_behind(rank)) missing.push_back(group_.domain_rank(rank));
    }
    rank_.watch().look_for(missing, act_, waited, [&](int missed) {
      for (int rank = 0; rank < group_.size(); ++rank) {
        if (group_.domain_rank(rank) == missed) return is_behind(rank);
      }
      return false;
    });
  }

 private:
  bool is_behind(int rank) const { return counters_.value(slot_, rank) < value_; }

  ShmRank& rank_;
  const ShmGroup& group_;
  const ShmCounters& counters_;
  int slot_;
  uint64_t value_;
  Act act_;
  int reached_ = 0;  // counters never fall, so each is seen once
};

}  // namespace

ShmCounters::ShmCounters(std::shared_ptr<ShmRank> rank, std::shared_ptr<const ShmGroup> group,
                         Claim& claim, int slots)
    : rank_(std::move(rank)), group_(std::move(group)), claim_(claim), slots_(slots) {
  const auto bytes = static_cast<int64_t>(sizeof(Counter)) * slots * group_->size();
  const auto& memory = *rank_->memory();
  const int64_t offset = memory.take(claim, bytes, group_->name().c_str());
  counters_ = reinterpret_cast<Counter*>(memory.common().base() + offset);
}

ShmCounters::~ShmCounters() { rank_->memory()->release(claim_, group_->size()); }

std::atomic<uint64_t>& ShmCounters::counter(int slot, int rank) const {
  check(slot >= 0 && slot < slots_ && rank >= 0 && rank < group_->size(),
        "counters: slot {} of rank {} asked for, expected one of {} slots of {} ranks", slot, rank,
        slots_, group_->size());
  return counters_[static_cast<int64_t>(slot) * group_->size() + rank].value;
}

void ShmCounters::publish(int slot, uint64_t value) {
  std::atomic<uint64_t>& own = counter(slot, group_->rank());
  if (own.load(std::memory_order_relaxed) >= value) return;
  own = value;
  group_->ring_others();
}

void ShmCounters::wait_for_all(int slot, uint64_t value, std::string_view what,
                               std::string_view unit) {
  const Act act{what, unit, group_->name(), 0};
  CounterCondition condition(*rank_, *group_, *this, slot, value, act);
  if (!condition.is_met()) {
    rank_->watch().note(act, CallProgress::issued);
    rank_->wait(condition);
  }
  rank_->watch().note(act, CallProgress::finished);
}

uint64_t ShmCounters::value(int slot, int rank) const { return counter(slot, rank).load(); }

}  // namespace fullshard::comm
