// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/wait_times.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace fullshard::memory {

void WaitTimes::around(const c10::Stream& stream, const std::function<void()>& wait) {
  // With a time: BACKEND_DEFAULT is timed, PYTORCH_DEFAULT is not.
  auto& [begin, end] =
      waits_.emplace_back(c10::Event(stream.device_type(), c10::EventFlag::BACKEND_DEFAULT),
                          c10::Event(stream.device_type(), c10::EventFlag::BACKEND_DEFAULT));
  begin.record(stream);
  wait();
  end.record(stream);
}

void WaitTimes::around_caller(c10::Device device, const std::function<void()>& wait) {
  if (device.is_cpu()) return wait();
  around(c10::impl::VirtualGuardImpl(device.type()).getStream(device), wait);
}

double WaitTimes::take() {
  constexpr double kMilliseconds = 1e-3;
  double seconds = 0;
  while (!waits_.empty() && waits_.front().second.query()) {
    seconds += kMilliseconds * waits_.front().first.elapsedTime(waits_.front().second);
    waits_.pop_front();
  }
  return seconds;
}

}  // namespace fullshard::memory
