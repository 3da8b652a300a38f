// SPDX-License-Identifier: Apache-2.0
// Whoever reads masters and optimizer states beside training, as an asynchronous save. It enters
// itself in the engine, so that everybody who changes them can have it finish first.
#pragma once

namespace fullshard::engine {

class MasterReader {
 public:
  virtual ~MasterReader() = default;

  // Returns when masters and states may change. On an accelerator what the caller's stream runs
  // from here on may change them; the host does not wait. Not collective.
  virtual void settle() = 0;
};

}  // namespace fullshard::engine
