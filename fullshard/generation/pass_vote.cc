// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/pass_vote.h"

#include <ATen/ops/full.h>

namespace fullshard::generation {

PassKind PassVote::agree(PassKind own) const {
  if (everyone_.size() == 1) return own;
  auto most = at::full({1}, static_cast<int64_t>(own), at::TensorOptions().dtype(at::kLong));
  everyone_.all_reduce(most, ReduceOp::max, "the next pass of generation").wait();
  return static_cast<PassKind>(most.item<int64_t>());
}

}  // namespace fullshard::generation
