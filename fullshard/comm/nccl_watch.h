// Looks after the calls of one NCCL communicator. The host does not wait for them, so a call that
// never ends would only show as a program that stands still: the watch names it and aborts.
#pragma once

#include <c10/core/Event.h>
#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "fullshard/comm/backend.h"

namespace fullshard {

class NcclWatch {
 public:
  NcclWatch(ncclComm_t communicator, std::chrono::milliseconds limit);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  void add(const Call& call, std::shared_ptr<c10::Event> done);
  // An error once a call has failed or outlasted the limit.
  void check_sound() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Watched {
    std::string what;
    std::shared_ptr<c10::Event> done;
    Clock::time_point issued;
  };

  void watch();
  void look();
  void give_up(const std::string& why);

  ncclComm_t communicator_;
  std::chrono::milliseconds limit_;
  mutable std::mutex mutex_;
  std::condition_variable ending_;
  std::deque<Watched> calls_;
  std::string failure_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace fullshard
