// SPDX-License-Identifier: Apache-2.0
// The thread that carries out the calls of one group over gloo, in order, and the caller's wait for
// them: both end when a rank is gone, late or calls something else, and say which one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fullshard/comm/awake_time.h"
#include "fullshard/comm/backend.h"
#include "fullshard/comm/call_terms.h"
#include "fullshard/comm/gloo/gloo_lane.h"
#include "fullshard/comm/gloo/gloo_watch.h"
#include "fullshard/comm/late_notice.h"

namespace fullshard::comm {

class ShmDomain;

struct GlooMembers {
  std::string group;
  int rank = 0;            // in the group
  std::vector<int> ranks;  // of the group, in the world
  std::vector<int> hosts;  // of those ranks
  int size() const { return static_cast<int>(ranks.size()); }
};

// What a call finds when its turn has come.
struct GlooTurn {
  GlooLane& lane;
  const Call& call;
  const CallTerms& terms;

  GlooGroup& group() const { return lane.group(); }
  // The first thing that every call does over gloo.
  at::Tensor meet(const at::Tensor& payload = {}) const { return lane.meet(terms, payload); }
};

// Lives as long as its thread, which may outlive the backend when a host has vanished.
class GlooWorker : public std::enable_shared_from_this<GlooWorker> {
 public:
  // Moves the data; owns its tensors.
  using Act = std::function<void(const GlooTurn&)>;

  // `domain` of this host's ranks, which are told while a call is under way; may be none.
  GlooWorker(GlooMembers members, std::unique_ptr<GlooLane> lane, std::shared_ptr<GlooWatch> watch,
             const Timeouts& timeouts, std::shared_ptr<ShmDomain> domain);

  const GlooMembers& members() const { return members_; }
  const std::shared_ptr<GlooWatch>& watch() const { return watch_; }
  const Timeouts& timeouts() const { return timeouts_; }

  void start();
  // Calls in flight are given up: what peers still wait for, they are told by the watch.
  void stop();
  Work issue(const Call& call, const CallTerms& terms, Act act);

 private:
  struct Job;
  class Pending;

  std::chrono::milliseconds limit_of(const Call& call) const {
    return length_of(call.limit, timeouts_);
  }
  std::chrono::milliseconds patience() const;
  std::string progress_name() const;
  std::string subject_of(const Call& call) const;

  void wait_for(const Job& job);
  void end_what_is_over();
  [[noreturn]] void fail_stuck(const Call& call, std::chrono::milliseconds lasted) const;
  void look_around(const Call& call, std::chrono::milliseconds waited,
                   std::map<int, uint64_t>& beats);

  void run();
  std::exception_ptr carry_out(Job& job) noexcept;
  std::string explain(const Job& job, const std::exception& error);
  void cut_when_idle();

  const GlooMembers members_;
  const std::unique_ptr<GlooLane> lane_;
  const std::shared_ptr<GlooWatch> watch_;
  const Timeouts timeouts_;
  const std::shared_ptr<ShmDomain> domain_;
  LateNotice late_;
  LastMeeting met_;     // these two belong to the thread
  std::string broken_;  // why no call can succeed any more

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;
  std::shared_ptr<Job> under_way_;
  AwakeTime under_way_for_;
  bool stop_ = false;
  bool ended_ = false;
};

}  // namespace fullshard::comm
