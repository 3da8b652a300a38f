// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/blocks/work_items.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace fullshard::stored {

bool do_items(int64_t num_items, int num_workers,
              const std::function<void(int worker, int64_t item)>& work,
              const std::atomic<bool>* stop) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::exception_ptr error;
  const auto is_stopped = [&] { return stop != nullptr && stop->load(); };
  const auto run = [&](int worker) {
    try {
      while (!failed && !is_stopped()) {
        const int64_t item = next++;
        if (item >= num_items) return;
        work(worker, item);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      failed = true;
    }
  };
  std::vector<std::thread> threads;
  const auto num_threads = std::min<int64_t>(num_workers, num_items);
  for (int worker = 1; worker < num_threads; ++worker) threads.emplace_back(run, worker);
  run(0);
  for (auto& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
  return !is_stopped();
}

}  // namespace fullshard::stored
