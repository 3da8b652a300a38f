// SPDX-License-Identifier: Apache-2.0
// Work on numbered items by several threads, with the results taken in order by one.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace fullshard::data {

// The number of cores that this process may use.
inline int num_allowed_cores() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Calls consume(work(0)), consume(work(1)), … until consume returns false. `work` runs on
// `num_threads` threads, at most a few items ahead; `consume` on the caller's. An exception of
// either stops it; of several, that of the first item is thrown, whatever the number of threads.
template <class Work, class Consume>
void in_order(int64_t num_items, int num_threads, const Work& work, const Consume& consume) {
  using Result = decltype(work(int64_t{0}));
  if (num_threads <= 1 || num_items <= 1) {
    for (int64_t i = 0; i < num_items && consume(work(i)); ++i) {
    }
    return;
  }

  struct Done {
    std::optional<Result> result;
    std::exception_ptr error;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int64_t, Done> done;
  int64_t next = 0;
  int64_t consumed = 0;
  bool stopped = false;
  const int64_t ahead = 2 * num_threads;

  const auto run = [&] {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return stopped || next == num_items || next < consumed + ahead; });
      if (stopped || next == num_items) return;
      const int64_t item = next++;
      lock.unlock();
      Done outcome;
      try {
        outcome.result.emplace(work(item));
      } catch (...) {
        outcome.error = std::current_exception();
      }
      lock.lock();
      done.emplace(item, std::move(outcome));
      changed.notify_all();
    }
  };
  const auto take = [&](int64_t item) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done.contains(item); });
    Done outcome = std::move(done.extract(item).mapped());
    consumed = item + 1;
    changed.notify_all();
    return outcome;
  };

  std::vector<std::jthread> threads;
  // Joins the threads on every way out, after they were told to stop.
  struct Stop {
    std::mutex& mutex;
    std::condition_variable& changed;
    bool& stopped;
    std::vector<std::jthread>& threads;
    ~Stop() {
      {
        const std::lock_guard lock(mutex);
        stopped = true;
      }
      changed.notify_all();
      threads.clear();
    }
  } stop{mutex, changed, stopped, threads};
  for (int64_t i = 0; i < std::min<int64_t>(num_threads, num_items); ++i) threads.emplace_back(run);
  for (int64_t i = 0; i < num_items; ++i) {
    Done outcome = take(i);
    if (outcome.error) std::rethrow_exception(outcome.error);
    if (!consume(std::move(*outcome.result))) return;
  }
}

}  // namespace fullshard::data
