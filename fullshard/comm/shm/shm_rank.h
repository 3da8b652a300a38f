// SPDX-License-Identifier: Apache-2.0
// One rank as its backends see it: its memory, its watch over the others, and the calls it has in
// flight. Backends, tensors and pending work keep it alive.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "fullshard/comm/shm/shm_arena.h"
#include "fullshard/comm/shm/shm_call.h"
#include "fullshard/comm/shm/shm_memory.h"
#include "fullshard/comm/shm/shm_waiting.h"
#include "fullshard/comm/shm/shm_watch.h"

namespace fullshard::comm {

// The calls of all groups. A rank that waits for one call does its part of the others meanwhile:
// otherwise two ranks that wait in different orders would wait for ever.
class ShmProgress {
 public:
  void add(std::shared_ptr<ShmCall> call);
  // Does what can be done of this call; says whether it has reached the stage.
  bool advance(ShmCall& call, ShmCall::Stage stage);
  // One step of any call; false when there was nothing to do.
  bool advance_any();
  // Looks at a call while no thread moves it.
  template <class Look>
  auto look(const Look& look) {
    const std::lock_guard lock(mutex_);
    return look();
  }

 private:
  void drop_retired();

  std::mutex mutex_;
  std::vector<std::shared_ptr<ShmCall>> calls_;
};

class ShmRank {
 public:
  ShmRank(std::shared_ptr<const ShmMemory> memory, int rank, const Timeouts& timeouts,
          std::vector<ShmDescriptor> lifelines, std::vector<int> names = {});

  int rank() const { return rank_; }
  int size() const { return memory_->num_ranks(); }
  const std::shared_ptr<const ShmMemory>& memory() const { return memory_; }
  const std::shared_ptr<ShmArena>& arena() const { return arena_; }
  ShmWatch& watch() { return watch_; }
  ShmProgress& progress() { return progress_; }

  // One step of any call, while this thread waits. Another of this rank may sleep for that call.
  bool help();
  // Blocks until the call has reached the stage.
  void wait(ShmCall& call, ShmCall::Stage stage);
  void wait(Condition& condition, bool is_beside = false);

 private:
  std::shared_ptr<const ShmMemory> memory_;
  int rank_;
  std::shared_ptr<ShmArena> arena_;
  ShmWatch watch_;
  ShmProgress progress_;
  Patience patience_;
};

}  // namespace fullshard::comm
