// Looks after calls on a stream. The host does not wait for them, so a call that never ends would
// only show as a program that stands still: the watch names it and lets go.
#pragma once

#include <c10/core/Event.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "fullshard/comm/backend.h"

namespace fullshard {

class StreamWatch {
 public:
  struct Link {
    std::string name;  // opens the message
    // Why calls under way cannot end; empty while nothing is known.
    std::function<std::string()> find_fault;
    // Frees a host that waits for the stream, or ends the process.
    std::function<void()> let_go;
  };

  StreamWatch(Link link, std::chrono::milliseconds limit);
  ~StreamWatch();
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;

  // `done` happens when the call has ended.
  void add(const Call& call, std::shared_ptr<const c10::Event> done);
  // An error once a call has failed or outlasted the limit.
  void check_sound() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Watched {
    std::string what;
    std::shared_ptr<const c10::Event> done;
    Clock::time_point issued;
  };

  void watch();
  void look();
  void give_up(const std::string& why);

  Link link_;
  std::chrono::milliseconds limit_;
  mutable std::mutex mutex_;
  std::condition_variable ending_;
  std::deque<Watched> calls_;
  std::string failure_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace fullshard
