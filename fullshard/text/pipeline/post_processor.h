// SPDX-License-Identifier: Apache-2.0
// Adds ids around those of a text.
#pragma once

#include <cstdint>
#include <vector>

#include "fullshard/text/pipeline/growth_limit.h"

namespace fullshard::text {

class PostProcessor {
 public:
  static constexpr int32_t kText = -1;

  // Adds one stage: a list of ids, with kText in place of the text.
  void add_stage(std::vector<int32_t> stage) { stages_.push_back(std::move(stage)); }

  // Applies the stages in order, each around the result of the one before; no more ids than the
  // limit allows.
  std::vector<int32_t> apply(std::vector<int32_t> ids, bool special,
                             const GrowthLimit& limit) const;

  // Every id that a stage may add.
  const std::vector<std::vector<int32_t>>& stages() const { return stages_; }

 private:
  std::vector<std::vector<int32_t>> stages_;
};

}  // namespace fullshard::text
