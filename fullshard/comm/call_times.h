// SPDX-License-Identifier: Apache-2.0
// When a call on a stream of an accelerator began and ended there, and when the caller's stream
// came to need it. Three points in streams: the host does not wait to make them.
#pragma once

#include <optional>

#include "fullshard/memory/recorded_event.h"

namespace fullshard::comm {

struct CallTimes {
  static constexpr auto kTimed = memory::RecordedEvent::Timing::on;

  explicit CallTimes(const c10::Stream& stream) : began(stream, kTimed) {}

  // All three lie behind us, so their distances can be asked for.
  bool have_passed() const {
    return ended && needed && ended->has_passed() && needed->has_passed();
  }

  memory::RecordedEvent began;
  std::optional<memory::RecordedEvent> ended, needed;
};

}  // namespace fullshard::comm
