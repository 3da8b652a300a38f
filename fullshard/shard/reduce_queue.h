// Issues the reductions of a backward in one order that all ranks share, whatever the order in
// which this rank's gradients became ready, and keeps a bounded number of them in flight.
#pragma once

#include <deque>
#include <functional>
#include <vector>

namespace fullshard {

class ReduceQueue {
 public:
  struct Actions {
    std::function<void(int unit)> issue;
    std::function<void(int unit)> finish;
    std::function<void(int unit)> advance;
  };

  explicit ReduceQueue(Actions actions) : actions_(std::move(actions)) {}

  // `order` holds the units that this backward will reduce.
  void open(std::vector<int> order, int num_units, int max_in_flight);
  // Issues the unit, and those behind it that wait for it, once everything before it is issued.
  void mark_ready(int unit);
  // Does what has become possible for those in flight, without waiting.
  void advance();
  // Issues what is left, ready or not, and waits for all.
  void flush();
  // After a failure: waits for what is in flight and forgets the rest.
  void abandon();

  int in_flight() const { return static_cast<int>(in_flight_.size()); }

 private:
  void issue_ready();
  void finish_oldest();

  Actions actions_;
  std::vector<int> order_;
  std::vector<bool> ready_;
  size_t next_ = 0;
  int max_in_flight_ = 1;
  std::deque<int> in_flight_;
};

}  // namespace fullshard
