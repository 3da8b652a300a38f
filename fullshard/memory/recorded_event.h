// SPDX-License-Identifier: Apache-2.0
// A point in a stream of a device, which the device comes past. It is recorded as it is made:
// libtorch says of an event that never was that it has passed, and its time is an error somewhere
// else.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>

namespace fullshard::memory {

// Copies are of the same point. Any thread.
class RecordedEvent {
 public:
  enum class Timing { off, on };  // with a time it costs the device a little

  // Behind all that the stream was given.
  explicit RecordedEvent(const c10::Stream& stream, Timing timing = Timing::off);
  // Behind what the calling thread's current stream of that device was given.
  static RecordedEvent of_caller(c10::Device device, Timing timing = Timing::off);

  c10::Device device() const { return event_->device(); }
  bool has_passed() const { return event_->query(); }
  // The host waits.
  void wait() const { event_->synchronize(); }
  // What the stream is given from here on runs behind it; the host does not wait.
  void hold(const c10::Stream& stream) const { event_->block(stream); }
  // Between two that have a time and have passed.
  double seconds_until(const RecordedEvent& later) const;

 private:
  std::shared_ptr<c10::Event> event_;
};

c10::Stream current_stream(c10::Device device);

}  // namespace fullshard::memory
