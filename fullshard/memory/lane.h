// SPDX-License-Identifier: Apache-2.0
// Work beside the caller's: copies and kernels on a stream of their own, ordered by marks. The host
// waits for nothing but LaneMark::wait().
//
//   copies.run([=] { window.copy_(resting, /*non_blocking=*/true); });
//   updates.wait_for(copies.mark());   // what updates runs from here on comes behind the copy
//   updates.run(update);
//   updates.mark().hold_caller();      // so does what the caller issues
//
// A lane of the CPU has no thread: it runs its work when somebody waits for it, as late as the
// marks allow, so that a reader who forgot to wait finds old values, every time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>

#include "fullshard/memory/recorded_event.h"

namespace fullshard::memory {

class WaitTimes;

// A point that a lane, or the caller's stream, comes past. Empty: it has.
class LaneMark {
 public:
  // What the caller's stream of that device holds now.
  static LaneMark of_caller(at::Device device);
  // A mark that another thread has yet to make: everything that is done with it waits for that
  // first, and throws what the thread threw instead.
  static LaneMark promised(std::shared_future<LaneMark> mark);

  // What the caller issues from here on runs behind it; the host does not wait.
  void hold_caller() const;
  // The host waits.
  void wait() const;

 private:
  friend class Lane;
  struct Queue;
  std::optional<RecordedEvent> event_;  // of a device
  std::shared_ptr<Queue> queue_;        // of the CPU, and how much of it must have run
  int64_t position_ = 0;
  struct Promise;
  std::shared_ptr<const Promise> promise_;
};

// One thread at a time.
class Lane {
 public:
  explicit Lane(at::Device device);
  // What a lane of the CPU has not run by then never runs, and whoever waits for it is told.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // On a device `work` is called at once and issues to the lane's stream; on the CPU it is called
  // later, so it must own what it uses.
  void run(std::function<void()> work);
  void wait_for(const LaneMark& mark);
  // The same, timed on a device.
  void wait_for(const LaneMark& mark, WaitTimes& times);
  LaneMark mark() const;
  // Memory of an accelerator's allocator that the lane still uses: freed, it is nobody else's
  // before the lane has come by.
  void keep(const at::Tensor& memory) const;

 private:
  at::Device device_;
  std::optional<c10::Stream> stream_;
  std::shared_ptr<LaneMark::Queue> queue_;
};

}  // namespace fullshard::memory
