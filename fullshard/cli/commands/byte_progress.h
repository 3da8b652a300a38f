// SPDX-License-Identifier: Apache-2.0
// A command's progress in bytes, on standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace fullshard::cli {

// A bar that is redrawn on a terminal, at most ten times a second; elsewhere one line per tenth.
class ByteProgress {
 public:
  using Clock = std::chrono::steady_clock;

  ByteProgress();
  ~ByteProgress();  // leaves the cursor on a new line
  ByteProgress(const ByteProgress&) = delete;
  ByteProgress& operator=(const ByteProgress&) = delete;

  void update(int64_t done, int64_t total);

  // "[######....]  60 %, 6 MiB of 10 MiB, 2 MiB/s, 2 s left"
  static std::string line(int64_t done, int64_t total, double seconds);

 private:
  bool is_terminal_;
  bool is_drawn_ = false;
  int64_t tenths_ = 0;
  Clock::time_point begin_;
  Clock::time_point drawn_;
};

}  // namespace fullshard::cli
