// SPDX-License-Identifier: Apache-2.0
// What is put around the ids of a text.
#pragma once

#include <cstdint>
#include <vector>

#include "fullshard/text/pipeline/growth_limit.h"

namespace fullshard::text {

class PostProcessor {
 public:
  static constexpr int32_t kText = -1;

  // One stage, as a list of ids with kText where the text goes.
  void add_stage(std::vector<int32_t> stage) { stages_.push_back(std::move(stage)); }

  // Stages in order, each around what the one before made; no more ids than the limit allows.
  std::vector<int32_t> apply(std::vector<int32_t> ids, bool special,
                             const GrowthLimit& limit) const;

  // Every id that it may put there.
  const std::vector<std::vector<int32_t>>& stages() const { return stages_; }

 private:
  std::vector<std::vector<int32_t>> stages_;
};

}  // namespace fullshard::text
