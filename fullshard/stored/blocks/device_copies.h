// SPDX-License-Identifier: Apache-2.0
// Copies out of an accelerator's memory into the host's, beside the program. They run in the order
// in which they were begun.
#pragma once

#include <cstdint>

namespace fullshard::stored {

// Any thread may call it.
class DeviceCopies {
 public:
  using Mark = int64_t;

  virtual ~DeviceCopies() = default;

  virtual Mark mark() = 0;           // behind everything begun so far
  virtual void wait(Mark mark) = 0;  // returns when all before it has been copied
};

}  // namespace fullshard::stored
