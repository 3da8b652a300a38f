// Work of one rank that the others wait for, however long it takes: a disk may be slow, and that is
// no reason for a rank to be given up. Nobody is in one collective for longer than a moment.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "fullshard/comm/communicator.h"

namespace fullshard {

class PatientWork {
 public:
  explicit PatientWork(std::chrono::milliseconds moment = std::chrono::seconds(1))
      : moment_(moment) {}
  ~PatientWork();
  PatientWork(const PatientWork&) = delete;
  PatientWork& operator=(const PatientWork&) = delete;

  // Collective. `act` runs on rank 0, on a thread of this object; returns when it has ended. It
  // must not throw: the others would not hear of it.
  void run(const Communicator& ranks, const std::function<void()>& act);

 private:
  void start(const std::function<void()>& act);
  bool has_ended(std::chrono::milliseconds patience);
  void work();

  std::chrono::milliseconds moment_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* act_ = nullptr;  // under way
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace fullshard
