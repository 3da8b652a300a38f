// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies from an accelerator's memory to the host's. They run in the order in which
// they were started.
#pragma once

#include <cstdint>

namespace fullshard::stored {

// Any thread may call it.
class DeviceCopies {
 public:
  using Mark = int64_t;

  virtual ~DeviceCopies() = default;

  virtual Mark mark() = 0;           // after everything started so far
  virtual void wait(Mark mark) = 0;  // returns when all before it has been copied
};

}  // namespace fullshard::stored
