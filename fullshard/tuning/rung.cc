// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tuning/rung.h"

#include <fmt/format.h>

namespace fullshard::tuning {

std::string Rung::title() const {
  if (name.empty()) return fmt::format("batch {}", micro_batch);
  return micro_batch == 1 ? name : fmt::format("{}, batch {}", name, micro_batch);
}

Rung Rung::with_batch(int64_t batch) const {
  Rung other = *this;
  other.micro_batch = batch;
  return other;
}

}  // namespace fullshard::tuning
