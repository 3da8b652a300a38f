// Memory of this process as the kernel counts it. Proportional size (PSS) divides a page by the
// number of processes that map it: the ranks' figures add up to what the host really spends.
#pragma once

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

}  // namespace fullshard::bench
