// SPDX-License-Identifier: Apache-2.0
// Memory of this process as the kernel counts it. Proportional size (PSS) divides a page by the
// number of processes that map it: the ranks' figures add up to what the host really spends.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

namespace fullshard::bench {

inline int64_t proportional_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    if (line.starts_with("Pss:")) return std::stoll(line.substr(4)) * 1024;
  }
  return 0;
}

inline int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// Samples the proportional size from a thread of its own while it lives. It disturbs page faults,
// so steps that it watches are not timed.
class PeakSampler {
 public:
  PeakSampler() : thread_([this] { sample(); }) {}
  ~PeakSampler() { stop(); }

  int64_t stop() {
    is_running_ = false;
    if (thread_.joinable()) thread_.join();
    return peak_;
  }

 private:
  void sample() {
    while (is_running_) {
      peak_ = std::max(peak_, proportional_bytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  int64_t peak_ = 0;
  std::atomic<bool> is_running_ = true;
  std::thread thread_;  // last: it uses the others
};

// Bytes that torch's CPU allocator holds for tensors made on this thread while it lives: the
// activations and temporaries of a step. Buffers of the engine do not come from that allocator.
class TensorMeter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t delta, size_t, size_t, c10::Device) override {
    live_ += delta;
    peak_ = std::max(peak_, live_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t peak() const { return peak_; }

 private:
  int64_t live_ = 0;
  int64_t peak_ = 0;
};

}  // namespace fullshard::bench
