// SPDX-License-Identifier: Apache-2.0
// Work of the host beside the caller's, in order, as an optimizer's step over host memory while a
// device computes. Beside an accelerator a thread does it; on a CPU device it is done as a Lane
// does it, when somebody waits for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "fullshard/memory/lane.h"

namespace fullshard::memory {

// run() and mark() are the caller's, one thread at a time.
class HostLane {
 public:
  explicit HostLane(at::Device device);
  // The thread does what it was given first; on a CPU device it is dropped, as Lane does.
  ~HostLane();
  HostLane(const HostLane&) = delete;
  HostLane& operator=(const HostLane&) = delete;

  // `work` must own what it uses, and returns what has to be passed beside its end: a copy of its
  // result to the device, say. What it throws is thrown to whoever waits.
  LaneMark run(std::function<LaneMark()> work);
  // Of everything that was given.
  const LaneMark& mark() const { return last_; }

 private:
  void serve();

  at::Device device_;
  std::optional<Lane> lane_;  // of a CPU device
  std::mutex mutex_;
  std::condition_variable given_;
  std::deque<std::packaged_task<LaneMark()>> work_;
  bool is_ending_ = false;
  LaneMark last_;
  std::thread thread_;
};

}  // namespace fullshard::memory
