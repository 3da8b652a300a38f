// SPDX-License-Identifier: Apache-2.0
// Looks after the calls of links on streams. The host does not wait for them, so a call that never
// ends would only show as a program that stands still: the watch names it and lets go of all links
// together, since a kernel of one may wait behind a kernel of another.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "fullshard/comm/awake_time.h"
#include "fullshard/comm/link_peers.h"

namespace fullshard::comm {

// One per world and process. Thread-safe; functions it is given are called on its thread.
class StreamWatch {
 public:
  struct Options {
    // First on every thread of the watch: it says which device the thread is for. Else the first
    // question about an event would make a context on GPU 0.
    std::function<void()> enter_thread = {};
    // Once, with the error: tells the other ranks, before anything is let go.
    std::function<void(const std::string&)> on_failure = {};
  };
  struct Link {
    std::string name;  // opens the message of a fault
    // Why calls under way cannot end, as the link itself knows; empty while nothing is wrong.
    std::function<std::string()> find_fault = {};
    std::shared_ptr<LinkPeers> peers = {};
    // Ends its calls on the device, so that a host that waits for the stream goes on; or ends the
    // process.
    std::function<void()> let_go;
  };
  using Owner = const void*;

  explicit StreamWatch(Options options);
  ~StreamWatch();
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;

  void add_link(Owner owner, Link link);
  // Returns when the watch uses nothing of it any more.
  void remove_link(Owner owner);

  // A call was issued; `is_done` says whether it has ended on the device, and may throw.
  void add(Owner owner, LinkCall call, std::function<bool()> is_done);
  // An Error once any link has failed. What the device holds is worth nothing from then on, since
  // calls that were let go look as if they had ended: to be asked before a call is issued, and
  // after every wait whose result is kept.
  void check_sound() const;
  bool is_sound() const;
  // This rank goes: lets go of all links, if that is not done. Later calls are errors.
  void abandon(const std::string& why);

 private:
  struct Watched {
    LinkCall call;
    std::function<bool()> is_done;
    AwakeTime waited = AwakeTime();  // since it was issued, or the call before it ended
  };
  struct Entry {
    Link link;
    std::deque<std::shared_ptr<Watched>> calls;
  };

  void run();
  void look();
  std::shared_ptr<Watched> oldest_of(Entry& entry);
  void look_at(const Link& link, Watched& watched);
  void give_up(const std::string& why);
  void let_go_of_all();

  const Options options_;
  mutable std::mutex mutex_;  // of the calls and the failure; never held for long
  std::mutex links_mutex_;    // held while links are looked at or let go; taken before mutex_
  std::map<Owner, Entry> links_;
  std::condition_variable ending_;
  std::string failure_;
  bool is_ending_ = false;
  std::thread thread_;
};

// A link's place in the watch, for as long as it lives.
class WatchedLink {
 public:
  WatchedLink(std::shared_ptr<StreamWatch> watch, StreamWatch::Link link);
  ~WatchedLink();
  WatchedLink(const WatchedLink&) = delete;
  WatchedLink& operator=(const WatchedLink&) = delete;

  // Before anything of the call is issued: an Error if any link has failed, else the peers are
  // told.
  LinkCall begin(const Call& call);
  // All of it is issued.
  void end(LinkCall call, std::function<bool()> is_done);
  // The call has been waited for on the host so long; an Error when that is in vain.
  void look(const LinkCall& call, std::chrono::milliseconds waited) const;
  // The link failed: an Error that names the rank that is gone, if one is known.
  void look_for_gone(const LinkCall& call) const;

 private:
  std::shared_ptr<StreamWatch> watch_;
  std::shared_ptr<LinkPeers> peers_;
  uint64_t number_ = 0;
};

}  // namespace fullshard::comm
