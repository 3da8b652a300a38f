// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/gradients/reduce_queue.h"

namespace fullshard::engine {

void ReduceQueue::issue(int unit) {
  // The older one first: its buffer may serve the next unit.
  while (in_flight() > 0 && in_flight() >= max_in_flight_) finish_oldest();
  in_flight_.push_back(unit);
  actions_.issue(unit);
  while (in_flight() > max_in_flight_) finish_oldest();
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
  while (!in_flight_.empty()) finish_oldest();
}

}  // namespace fullshard::engine
