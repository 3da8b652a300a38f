// SPDX-License-Identifier: Apache-2.0
// How long a stream of a device stood still for another, by the device's own marks.
#pragma once

#include <c10/core/Stream.h>

#include <deque>
#include <functional>
#include <utility>

#include "fullshard/memory/recorded_event.h"

namespace fullshard::memory {

// One thread at a time.
class WaitTimes {
 public:
  // `wait` makes the stream wait, and perhaps the host. One that throws is not counted.
  void around(const c10::Stream& stream, const std::function<void()>& wait);
  // The same for the caller's stream. Of a CPU nothing is timed: its lanes are for tests.
  void around_caller(c10::Device device, const std::function<void()>& wait);

  // Seconds of those waits, not counted before, that the device has come past; the host does not
  // wait for the others.
  double take();

 private:
  std::deque<std::pair<RecordedEvent, RecordedEvent>> waits_;  // around each
};

}  // namespace fullshard::memory
