// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/lane.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <deque>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/memory/wait_times.h"

namespace fullshard::memory {

struct LaneMark::Queue {
  std::deque<std::function<void()>> work;
  int64_t num_run = 0;
  bool is_abandoned = false;

  void run_to(int64_t position) {
    while (num_run < position) {
      check(!is_abandoned,
            "work beside the caller's, as an optimizer's update, was still to be done when its "
            "owner was destroyed; call sharded.settle() before the optimizer ends");
      const auto next = std::move(work.front());
      work.pop_front();
      next();
      ++num_run;
    }
  }
};

struct LaneMark::Promise {
  std::shared_future<LaneMark> mark;
};

LaneMark LaneMark::of_caller(at::Device device) {
  LaneMark mark;
  if (!device.is_cpu()) mark.event_ = RecordedEvent::of_caller(device);
  return mark;
}

LaneMark LaneMark::promised(std::shared_future<LaneMark> mark) {
  LaneMark promised;
  promised.promise_ = std::make_shared<const Promise>(Promise{std::move(mark)});
  return promised;
}

void LaneMark::hold_caller() const {
  if (promise_) promise_->mark.get().hold_caller();
  if (event_) event_->hold(current_stream(event_->device()));
  if (queue_) queue_->run_to(position_);
}

void LaneMark::wait() const {
  if (promise_) promise_->mark.get().wait();
  if (event_) event_->wait();
  if (queue_) queue_->run_to(position_);
}

Lane::Lane(at::Device device) : device_(device) {
  if (device.is_cpu()) {
    queue_ = std::make_shared<LaneMark::Queue>();
  } else {
    stream_ = c10::impl::VirtualGuardImpl(device.type()).getNewStream(device);
  }
}

Lane::~Lane() {
  if (!queue_) return;
  queue_->is_abandoned = true;
  queue_->work.clear();
}

void Lane::run(std::function<void()> work) {
  if (queue_) {
    queue_->work.push_back(std::move(work));
    return;
  }
  const c10::StreamGuard on_stream(*stream_);
  work();
}

void Lane::wait_for(const LaneMark& mark) {
  if (mark.promise_) return wait_for(mark.promise_->mark.get());
  if (mark.event_) mark.event_->hold(*stream_);
  if (mark.queue_) run([mark] { mark.wait(); });
}

void Lane::wait_for(const LaneMark& mark, WaitTimes& times) {
  if (!stream_) return wait_for(mark);
  times.around(*stream_, [&] { wait_for(mark); });
}

void Lane::keep(const at::Tensor& memory) const {
  if (stream_) memory.record_stream(*stream_);
}

LaneMark Lane::mark() const {
  LaneMark mark;
  if (queue_) {
    mark.queue_ = queue_;
    mark.position_ = queue_->num_run + static_cast<int64_t>(queue_->work.size());
  } else {
    mark.event_ = RecordedEvent(*stream_);
  }
  return mark;
}

}  // namespace fullshard::memory
