// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/wait_times.h"

namespace fullshard::memory {

void WaitTimes::around(const c10::Stream& stream, const std::function<void()>& wait) {
  const RecordedEvent begin(stream, RecordedEvent::Timing::on);
  wait();
  waits_.emplace_back(begin, RecordedEvent(stream, RecordedEvent::Timing::on));
}

void WaitTimes::around_caller(c10::Device device, const std::function<void()>& wait) {
  if (device.is_cpu()) return wait();
  around(current_stream(device), wait);
}

double WaitTimes::take() {
  double seconds = 0;
  while (!waits_.empty() && waits_.front().second.has_passed()) {
    seconds += waits_.front().first.seconds_until(waits_.front().second);
    waits_.pop_front();
  }
  return seconds;
}

}  // namespace fullshard::memory
