// SPDX-License-Identifier: Apache-2.0
// Who is still there, over a store: a thread of each rank writes every quarter of a second that it
// lives, what it did last and how far it has come in each group. The first rank to find another
// missing settles whom all of them blame. When the network to the store's host is cut, the ranks
// beyond it blame the holder, and the holder tells the others of a rank beyond it: both within
// `kHostSilence` and a second, whatever the limit of a call. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "fullshard/comm/backend.h"
#include "fullshard/comm/missing.h"
#include "fullshard/comm/store/rendezvous.h"

namespace fullshard::comm {

// The newest call of a group that every rank is known to have come to. Fresher than a beat.
struct LastMeeting {
  std::string group;
  uint64_t sequence = 0;
  std::string call;  // "all_gather of unit 'blocks.2' (group world, sequence 16)"; empty: none yet
};

class GlooWatch {
 public:
  GlooWatch(std::shared_ptr<Store> store, int rank, int size, std::shared_ptr<Recorder> recorder);
  ~GlooWatch();
  GlooWatch(const GlooWatch&) = delete;
  GlooWatch& operator=(const GlooWatch&) = delete;

  int rank() const { return rank_; }

  // Called on the watch's thread, at every beat, once some rank is missing. It may ask the watch,
  // and wait for what somebody holds who asks it; not add or remove alarms.
  void add_alarm(const void* owner, std::function<void()> alarm);
  void remove_alarm(const void* owner);

  // This rank has come to `sequence` in the group.
  void note_progress(const std::string& group, uint64_t sequence);

  // Whom some rank has found missing.
  std::optional<Missing> missing() const;
  // It is missing with its host, or the network to it: nobody there closes a connection any more.
  bool is_host_lost() const;
  // A connection broke: which of `ranks` is gone? Looks for about a second; nothing when all live.
  std::optional<Missing> find_gone(std::span<const int> ranks, const LastMeeting& met);
  // The time is over: which of `ranks` has not come to `sequence`?
  std::optional<Missing> find_late(std::span<const int> ranks, const std::string& group,
                                   uint64_t sequence, std::chrono::milliseconds waited,
                                   TimeLimit limit, const LastMeeting& met);
  // The store owes the watch no answer for longer than a beat. Who only looks around asks this
  // first: on a store behind a cut link that look would last longer than the watch needs to name
  // the host, and longer than a launcher waits for a rank to say so.
  bool is_store_answering() const;
  // Which of `ranks` has not given a sign of life since the last look? `seen` is what this function
  // saw then, empty before the first one; nobody is silent before the second. Looks should lie so
  // far apart that the most starved of ranks beats in between.
  std::optional<Missing> find_silent(std::span<const int> ranks, std::map<int, uint64_t>& seen);

  // The first of `ranks` that is not known to have come to `sequence`; its last act with it.
  std::optional<Missing> find_absent(std::span<const int> ranks, const std::string& group,
                                     uint64_t sequence);

  // An empty reason: this rank ended well; then waits a moment for the others to end too, because
  // what was sent to them is lost with the connections, and the store with its holder.
  void leave(const std::string& reason) noexcept;

 private:
  struct Beat {
    uint64_t count = 0;
    std::string last_act;
    std::map<std::string, uint64_t> progress;
  };

  void run();
  void sound_alarms();
  std::shared_ptr<Store> connect() const;
  void beat_once(Store& store);
  void look_for_lost(Store& store);
  bool is_unanswered_for(std::chrono::milliseconds time) const;
  bool is_cut_off() const;
  std::optional<Missing> holder_beyond(const LastMeeting& met);
  Missing blame_unreachable_holder(const LastMeeting& met);
  std::optional<Missing> find_stale(std::span<const int> ranks, const LastMeeting& met,
                                    const std::string& how);
  Missing settle(const Missing& found);
  std::optional<Missing> gone_by_mark(std::span<const int> ranks, const LastMeeting& met);
  std::optional<Beat> beat_of(int rank);
  std::vector<std::optional<Beat>> beats_of(std::span<const int> ranks);
  static std::optional<Beat> decode_beat(const std::optional<std::string>& text);
  static std::string last_act_of(const std::optional<Beat>& beat, const LastMeeting& met);
  std::string encoded_beat();
  Missing holder_gone(const LastMeeting& met) const;

  std::shared_ptr<Store> store_;
  int rank_;
  int size_;
  std::shared_ptr<Recorder> recorder_;

  mutable std::mutex mutex_;
  std::condition_variable stop_wanted_;
  bool stop_ = false;
  uint64_t count_ = 0;
  std::map<std::string, uint64_t> progress_;
  std::optional<Missing> missing_;
  std::optional<Beat> holder_beat_;
  std::optional<std::chrono::steady_clock::time_point> unanswered_since_;

  std::mutex alarms_mutex_;  // held while they sound: one that is removed is not running any more
  std::map<const void*, std::function<void()>> alarms_;
  std::thread thread_;
};

}  // namespace fullshard::comm
