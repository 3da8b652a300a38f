// SPDX-License-Identifier: Apache-2.0
// When a call on a stream of an accelerator began and ended there, and when the caller's stream
// came to need it. Three marks on streams: nobody waits to make them.
#pragma once

#include <c10/core/Event.h>

namespace fullshard::comm {

struct CallTimes {
  explicit CallTimes(c10::DeviceType device)
      : began(device, kTimed), ended(device, kTimed), needed(device, kTimed) {}

  // All three lie behind us, so their distances can be asked for.
  bool have_passed() const {
    return needed.was_marked_for_recording() && ended.query() && needed.query();
  }

  static constexpr auto kTimed = c10::EventFlag::BACKEND_DEFAULT;
  c10::Event began, ended, needed;
};

}  // namespace fullshard::comm
