// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/host_memory_speed.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/tiers/triad_kernels.h"

namespace fullshard::tiers {

HostMemorySpeed measure_host_memory(int num_threads, int64_t bytes, int rounds) {
  constexpr int64_t kBytesPerElement = 24;
  check(num_threads >= 1 && rounds >= 1 && bytes >= kBytesPerElement * num_threads,
        "bench bus: {} threads, {} rounds over {} bytes, expected at least one of each",
        num_threads, rounds, bytes);
  const int64_t numel = bytes / kBytesPerElement / num_threads;
  std::vector<double> seconds(static_cast<size_t>(rounds));
  std::barrier meeting(num_threads);
  // A thread's part is its own, and first touched by it: on machines of several sockets it lies
  // beside the core then.
  const auto work = [&](int thread) {
    const auto count = static_cast<size_t>(numel);
    std::vector<double> a(count, 0), b(count, 1), c(count, 2);
    for (double& taken : seconds) {
      meeting.arrive_and_wait();
      const auto begin = std::chrono::steady_clock::now();
      triad(a.data(), b.data(), c.data(), 0.5, numel);
      meeting.arrive_and_wait();
      if (thread != 0) continue;
      taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads; ++i) threads.emplace_back(work, i);
  work(0);
  for (auto& thread : threads) thread.join();
  const double best = *std::min_element(seconds.begin(), seconds.end());
  const auto moved = static_cast<double>(kBytesPerElement * numel * num_threads);
  return {num_threads, best > 0 ? moved / best : 0};
}

}  // namespace fullshard::tiers
