// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/loss_weight.h"

#include <algorithm>
#include <numeric>

#include "fullshard/base/error.h"

namespace fullshard {

namespace {

int64_t sum_over_ranks(const Communicator& communicator, int64_t own) {
  const auto total = communicator.allocate(1, at::kLong);
  total.fill_(own);
  communicator.all_reduce(total, ReduceOp::sum, "loss weight").wait();
  return total.item<int64_t>();
}

}  // namespace

double loss_weight(const Communicator& communicator, int64_t own_labels) {
  return loss_weights(communicator, {own_labels}).front();
}

std::vector<double> loss_weights(const Communicator& communicator,
                                 const std::vector<int64_t>& own_labels) {
  const auto own = std::accumulate(own_labels.begin(), own_labels.end(), int64_t{0});
  const auto total = sum_over_ranks(communicator, own);
  for (const auto labels : own_labels) {
    check(labels >= 0, "loss weight: {} labels on rank {}, expected 0 or more", labels,
          communicator.rank());
  }
  check(total > 0,
        "loss weight: no rank has a label in this batch, so its loss has no mean; skip the batch");
  const auto parts = static_cast<double>(communicator.size()) * own_labels.size();
  std::vector<double> weights(own_labels.size());
  std::transform(own_labels.begin(), own_labels.end(), weights.begin(), [&](int64_t labels) {
    return static_cast<double>(labels) * parts / static_cast<double>(total);
  });
  return weights;
}

}  // namespace fullshard
