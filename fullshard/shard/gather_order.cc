#include "fullshard/shard/gather_order.h"

#include <utility>

namespace fullshard {

void GatherOrder::open(std::vector<int> order, int num_units) {
  order_ = std::move(order);
  position_.assign(num_units, -1);
  for (size_t i = 0; i < order_.size(); ++i) position_[order_[i]] = static_cast<int>(i);
  next_ = 0;
}

}  // namespace fullshard
