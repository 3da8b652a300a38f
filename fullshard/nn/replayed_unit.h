// SPDX-License-Identifier: Apache-2.0
// Whose forward backward is running again, of this thread.
#pragma once

#include "fullshard/nn/unit_state.h"

namespace fullshard::nn {

// True while this unit itself, and not one around or inside it, is computed again for its backward.
// Nobody reads the values of its result then: what only they ask for may be left out.
bool is_replayed(const UnitState& unit);

// Around the replay of a recomputed call.
class ReplayedUnitScope {
 public:
  explicit ReplayedUnitScope(const UnitState& unit);
  ~ReplayedUnitScope();
  ReplayedUnitScope(const ReplayedUnitScope&) = delete;
  ReplayedUnitScope& operator=(const ReplayedUnitScope&) = delete;

 private:
  const UnitState* before_;
};

}  // namespace fullshard::nn
