// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/recorded_event.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace fullshard::memory {
namespace {

// BACKEND_DEFAULT has a time, PYTORCH_DEFAULT has none.
c10::EventFlag flag_of(RecordedEvent::Timing timing) {
  return timing == RecordedEvent::Timing::on ? c10::EventFlag::BACKEND_DEFAULT
                                             : c10::EventFlag::PYTORCH_DEFAULT;
}

}  // namespace

RecordedEvent::RecordedEvent(const c10::Stream& stream, Timing timing)
    : event_(std::make_shared<c10::Event>(stream.device_type(), flag_of(timing))) {
  event_->record(stream);
}

RecordedEvent RecordedEvent::of_caller(c10::Device device, Timing timing) {
  return RecordedEvent(current_stream(device), timing);
}

double RecordedEvent::seconds_until(const RecordedEvent& later) const {
  return event_->elapsedTime(*later.event_) / 1000;
}

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace fullshard::memory
