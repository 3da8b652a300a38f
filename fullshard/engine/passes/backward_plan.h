// SPDX-License-Identifier: Apache-2.0
// The order of a backward's collectives, known before it begins and the same on every rank: when
// each unit begins and ends, and what is gathered ahead of its use at each of these points. The
// drawing is in docs/schedule.md.
//
// Autograd runs a graph in the reverse of the order in which it was made, so a unit's backward
// begins where the last call of its forward ended, and is over where the first one began. A
// recomputed call runs forward once more before that: units inside begin in the order of that
// forward.
#pragma once

#include <cstdint>
#include <vector>

#include "fullshard/engine/passes/forward_log.h"
#include "fullshard/engine/plan/schedule.h"

namespace fullshard::engine {

struct BackwardStep {
  enum class Mark { begin, end };
  Mark mark;
  int unit;
  std::vector<int> ahead = {};  // units to gather here, after `unit` when it begins
  bool gathers = true;          // of a beginning: this backward reads the unit's parameters

  bool operator==(const BackwardStep&) const = default;
};

// Each unit of the log begins once and ends once.
std::vector<BackwardStep> reverse_order(const std::vector<ForwardLog::Entry>& log);

// Fills in what is gathered ahead, from what is gathered already when the backward begins.
void plan_gathers_ahead(std::vector<BackwardStep>& steps, const Schedule& schedule,
                        const std::vector<bool>& is_live);

}  // namespace fullshard::engine
