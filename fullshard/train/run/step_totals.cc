// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/step_totals.h"

#include <algorithm>

namespace fullshard::train {

StepTotals::StepTotals(const Communicator& everyone, const std::vector<double>& own,
                       std::string_view what) {
  const auto count = static_cast<int64_t>(own.size());
  const at::Tensor row = everyone.allocate(count, at::kDouble);
  std::copy(own.begin(), own.end(), row.mutable_data_ptr<double>());
  rows_ = everyone.allocate(everyone.size() * count, at::kDouble).view({everyone.size(), count});
  everyone.all_gather(rows_, row, what).wait();
}

double StepTotals::sum(int64_t place) const {
  const auto rows = rows_.accessor<double, 2>();
  double total = 0;
  for (int64_t rank = 0; rank < rows.size(0); ++rank) total += rows[rank][place];
  return total;
}

double StepTotals::largest(int64_t place) const {
  const auto rows = rows_.accessor<double, 2>();
  double most = rows[0][place];
  for (int64_t rank = 1; rank < rows.size(0); ++rank) most = std::max(most, rows[rank][place]);
  return most;
}

}  // namespace fullshard::train
