// The gathers of a backward come in one order on all ranks, even when a unit's output is not used
// on one of them: a unit whose turn is passed over is gathered all the same.
#pragma once

#include <vector>

namespace fullshard {

class GatherOrder {
 public:
  // The units that this backward will gather, first to last.
  void open(std::vector<int> order, int num_units);

  // Calls gather(unit) for every unit up to and including `unit` whose turn has not come.
  template <class Gather>
  void reach(int unit, const Gather& gather) {
    if (position_[unit] < 0) return;  // not of this backward
    while (next_ <= position_[unit]) gather(order_[next_++]);
  }

  bool is_exhausted() const { return next_ == static_cast<int>(order_.size()); }
  int next() const { return order_[next_]; }
  int take_next() { return order_[next_++]; }

 private:
  std::vector<int> order_;
  std::vector<int> position_;
  int next_ = 0;
};

}  // namespace fullshard
