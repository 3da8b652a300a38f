// SPDX-License-Identifier: Apache-2.0
// Ranks whose data end at different times: all of them stop together, and none waits for ever.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/comm/communicator.h"

namespace fullshard {

// while (vote.all_have_data(loader.num_left())) train_on(loader.next());
// Called from the thread that trains; holds a handle of the communicator.
class EpochVote {
 public:
  explicit EpochVote(Communicator communicator);

  // Collective: eight bytes per rank; every rank gets the same answer. `num_left` are the
  // micro-batches that this rank still has, the one at hand included; a loader that only knows
  // whether there is another one gives true or false. The first false ends the epoch; the next call
  // begins another.
  bool all_have_data(int64_t num_left);

  // Of the epoch that ended last, on every rank the same: what each rank had left, by rank, and the
  // sum of it. Empty and 0 before any epoch has ended.
  const std::vector<int64_t>& dropped() const { return dropped_; }
  int64_t num_dropped() const;
  // "3 micro-batches were dropped (rank 0: 1, rank 2: 2) when rank 1 ran out of data", or empty.
  std::string describe_dropped() const;

 private:
  Communicator communicator_;
  at::Tensor votes_;  // one per rank
  at::Tensor own_;    // this rank's place in them
  std::vector<int64_t> dropped_;
};

}  // namespace fullshard
