// SPDX-License-Identifier: Apache-2.0
// Reductions in flight: a bounded number of them, finished in the order in which they were issued.
#pragma once

#include <deque>
#include <functional>

namespace fullshard::engine {

class ReduceQueue {
 public:
  struct Actions {
    std::function<void(int unit)> issue;
    std::function<void(int unit)> finish;
    std::function<void(int unit)> advance;
  };

  explicit ReduceQueue(Actions actions) : actions_(std::move(actions)) {}

  // Of the backward that begins; 0: each is waited for at once.
  void limit(int max_in_flight) { max_in_flight_ = max_in_flight; }
  void issue(int unit);
  // Does what has become possible for those in flight, without waiting.
  void advance();
  // Waits for all.
  void flush();

  int in_flight() const { return static_cast<int>(in_flight_.size()); }

 private:
  void finish_oldest();

  Actions actions_;
  int max_in_flight_ = 1;
  std::deque<int> in_flight_;
};

}  // namespace fullshard::engine
