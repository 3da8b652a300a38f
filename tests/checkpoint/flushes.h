// SPDX-License-Identifier: Apache-2.0
// What this process flushed to disk and renamed, in order. The test program has an fsync() and a
// rename() of its own, which note the call and make it.
#pragma once

#include <string>
#include <vector>

namespace fullshard::testing {

// Notes while it lives, calls on paths that begin with `folder`, of all threads. One at a time.
class Flushes {
 public:
  explicit Flushes(std::string folder);
  ~Flushes();
  Flushes(const Flushes&) = delete;
  Flushes& operator=(const Flushes&) = delete;

  // "fsync step-000001.part/weights-00000.bin", "rename step-000001.part to step-000001"; paths are
  // below the folder, which itself is ".".
  std::vector<std::string> events() const;
};

}  // namespace fullshard::testing
