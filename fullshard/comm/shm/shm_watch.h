// SPDX-License-Identifier: Apache-2.0
// Who is still there, and whom to blame when one is not. Each rank keeps a note of its last act;
// the first rank to find another missing settles the verdict that all of them report.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fullshard/comm/awake_time.h"
#include "fullshard/comm/late_notice.h"
#include "fullshard/comm/missing.h"
#include "fullshard/comm/shm/shm_control.h"
#include "fullshard/comm/shm/shm_descriptor.h"
#include "fullshard/comm/timeouts.h"

namespace fullshard::comm {

// Something a rank does together with others, as messages name it.
struct Act {
  std::string_view what;  // an operation
  std::string_view unit;  // "unit 'blocks.2'", or what else it is for; may be empty
  std::string_view group;
  uint64_t sequence = 0;  // 0: not counted
  TimeLimit limit = TimeLimit::step;
  // A thread beside the caller's does it: while that waits, nobody is taken to wait for this rank.
  bool is_beside = false;
};

// Closes when its process ends, however it ends; any number of processes may hold the other end.
struct Lifeline {
  ShmDescriptor watched;  // becomes readable or hangs up at the end
  ShmDescriptor held;     // what the living process keeps, where the kernel has no pidfd
  static Lifeline of_this_process();
};

// One per rank; every function may be called from any of its threads.
class ShmWatch {
 public:
  // `lifelines` holds one descriptor per rank, or nothing when ranks are threads. `names` of the
  // ranks in messages, where this host is one of several; else their numbers.
  ShmWatch(DomainBlock& block, int rank, int size, const Timeouts& timeouts,
           std::vector<ShmDescriptor> lifelines, std::vector<int> names = {});

  int name_of_rank(int rank) const {
    return names_.empty() ? rank : names_[static_cast<size_t>(rank)];
  }
  // Asked while this rank waits: who is known to be missing in the world, of which this host is one
  // of several. The first rank of the host that knows tells the others.
  using AskOutside = std::function<std::optional<Missing>()>;
  void ask_outside(AskOutside ask) { outside_ = std::move(ask); }

  // A call between hosts begins on this rank, or ends. Whoever waits for this rank leaves it to
  // those beyond to say who is late, for some seconds past the limit.
  void enter_beyond() { ++notes(rank_).beyond; }
  void leave_beyond() { --notes(rank_).beyond; }

  void note(const Act& act, CallProgress progress);
  // Throws when the verdict is settled, when one of the missing ranks is gone, when ranks wait for
  // each other in different calls, or when they have been waited for longer than the act allows.
  // `is_missing` is asked again after a rank was seen to be gone: its last store may have been what
  // was waited for.
  void look_for(std::span<const int> missing, const Act& act, std::chrono::milliseconds waited,
                const std::function<bool(int)>& is_missing);
  // The same for a call that a link carries beside the host, which no thread may be waiting for:
  // any rank that died or failed ends it, and nobody is taken to wait for this rank. With nobody
  // missing it ends at the limit all the same.
  void look_beside(std::span<const int> missing, const Act& act, std::chrono::milliseconds waited);
  // This rank has what it waited for.
  void stop_waiting() { notes(rank_).waits_for = 0; }

  [[noreturn]] void disagree(const std::string& message);
  void leave(const std::string& reason) noexcept;
  void ring_everyone() noexcept;

 private:
  struct Finding {
    Cause cause = Cause::none;
    int rank = 0;
    int64_t milliseconds = 0;
    std::string text;  // a reason; of a late rank the time limit's name; outside: encoded
  };

  Note& notes(int rank) { return block_.notes[rank]; }
  Cause how_gone(int rank);
  int root_of(std::span<const int> missing);
  std::chrono::milliseconds limit_for(int late, const Act& act);
  // What the ranks of a circle of waiting do, this one first; empty when there is no circle.
  std::string circle_through(int missing);
  void look_for_circle(int missing);
  void look_outside(const Act& act);
  // How long the same circle has been seen.
  std::chrono::milliseconds age_of(const std::string& circle);
  void settle(const Finding& finding) noexcept;
  bool is_settled() const { return block_.verdict.state.load() == Verdict::settled; }
  [[noreturn]] void conclude(const Finding& finding, const Act& act);
  [[noreturn]] void report(const Finding& finding, const Act& act);
  Finding verdict() const;
  std::string last_act_of(int rank, std::string_view group);
  std::string subject_of(const Act& act) const;

  DomainBlock& block_;
  int rank_;
  int size_;
  Timeouts timeouts_;
  std::vector<ShmDescriptor> lifelines_;
  const std::vector<int> names_;
  AskOutside outside_;
  LateNotice late_;
  std::mutex circle_mutex_;
  std::string circle_;  // seen at the last look, and for how long it has not changed
  AwakeTime circle_age_;
};

// "all_gather of unit 'blocks.2'"
std::string describe(const Act& act);

}  // namespace fullshard::comm
