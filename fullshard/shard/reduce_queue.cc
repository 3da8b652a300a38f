#include "fullshard/shard/reduce_queue.h"

#include <utility>

namespace fullshard {

void ReduceQueue::open(std::vector<int> order, int num_units, int max_in_flight) {
  order_ = std::move(order);
  ready_.assign(num_units, false);
  next_ = 0;
  max_in_flight_ = max_in_flight;
}

void ReduceQueue::mark_ready(int unit) {
  ready_[unit] = true;
  issue_ready();
}

void ReduceQueue::issue_ready() {
  for (; next_ < order_.size() && ready_[order_[next_]]; ++next_) {
    const int unit = order_[next_];
    // The older one first: its buffer may serve the next unit.
    while (in_flight() > 0 && in_flight() >= max_in_flight_) finish_oldest();
    in_flight_.push_back(unit);
    actions_.issue(unit);
    while (in_flight() > max_in_flight_) finish_oldest();
  }
}

void ReduceQueue::advance() {
  for (const int unit : in_flight_) actions_.advance(unit);
}

void ReduceQueue::finish_oldest() {
  const int unit = in_flight_.front();
  in_flight_.pop_front();
  actions_.finish(unit);
}

void ReduceQueue::flush() {
  ready_.assign(ready_.size(), true);
  issue_ready();
  while (!in_flight_.empty()) finish_oldest();
}

void ReduceQueue::abandon() {
  while (!in_flight_.empty()) finish_oldest();
  order_.clear();
  next_ = 0;
}

}  // namespace fullshard
