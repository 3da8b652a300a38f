// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/replayed_unit.h"

#include <utility>

namespace fullshard::nn {
namespace {

thread_local const UnitState* present_replay = nullptr;

}  // namespace

bool is_replayed(const UnitState& unit) { return present_replay == &unit; }

ReplayedUnitScope::ReplayedUnitScope(const UnitState& unit)
    : before_(std::exchange(present_replay, &unit)) {}

ReplayedUnitScope::~ReplayedUnitScope() { present_replay = before_; }

}  // namespace fullshard::nn
