// SPDX-License-Identifier: Apache-2.0
// A file that cannot be made until the test says so: the program's own open() waits. It makes a
// background writer as late as one likes.
#pragma once

#include <chrono>
#include <string>

namespace fullshard::testing {

// One at a time. Whoever opens a file whose path ends so for writing waits until release().
class HeldOpen {
 public:
  explicit HeldOpen(std::string end_of_path);
  ~HeldOpen();  // releases
  HeldOpen(const HeldOpen&) = delete;
  HeldOpen& operator=(const HeldOpen&) = delete;

  // Until somebody waits for the file; false: nobody came to open it.
  bool wait_for_opener(std::chrono::seconds timeout) const;
  void release();
};

}  // namespace fullshard::testing
