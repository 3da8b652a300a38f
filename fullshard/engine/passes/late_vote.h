// SPDX-License-Identifier: Apache-2.0
// Which units got gradients after their turn in a backward, on any rank. Most backwards have none:
// ranks that share memory say so in a word each, without a collective.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fullshard/comm/communicator.h"

namespace fullshard::engine {

class LateVote {
 public:
  // Collective.
  explicit LateVote(const Communicator& everyone);

  // Collective. Those of the units that are late on any rank.
  std::vector<bool> ask(std::vector<bool> is_late);

 private:
  bool is_anyone_late(bool am_late);

  Communicator everyone_;
  std::shared_ptr<SharedCounters> counters_;  // where ranks share memory
  uint64_t round_ = 0;
};

}  // namespace fullshard::engine
