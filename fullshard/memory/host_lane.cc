// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/host_lane.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace fullshard::memory {
HostLane::HostLane(at::Device device) : device_(device) {
  if (device.is_cpu()) {
    lane_.emplace(device);
  } else {
    thread_ = std::thread([this] { serve(); });
  }
}

HostLane::~HostLane() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  given_.notify_one();
  thread_.join();
}

void HostLane::serve() {
  c10::impl::VirtualGuardImpl(device_.type()).setDevice(device_);
  for (;;) {
    std::unique_lock lock(mutex_);
    given_.wait(lock, [this] { return is_ending_ || !work_.empty(); });
    if (work_.empty()) return;
    auto next = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    next();
  }
}

LaneMark HostLane::run(std::function<LaneMark()> work) {
  if (lane_) {
    lane_->run([work = std::move(work)] { work().wait(); });
    last_ = lane_->mark();
    return last_;
  }
  std::packaged_task<LaneMark()> task(std::move(work));
  last_ = LaneMark::promised(task.get_future().share());
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(task));
  }
  given_.notify_one();
  return last_;
}

}  // namespace fullshard::memory
