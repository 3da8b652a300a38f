// SPDX-License-Identifier: Apache-2.0
// Everything that a run makes of a Plan, as one text: two Plans that read differently but give the
// same text differ in nothing that a user could notice.
#pragma once

#include <string>

#include "fullshard/config/plan.h"

namespace fullshard::testing {

// On four ranks, over 200 steps, with a small model of classes PlanRoot and PlanBlock.
std::string consumers_of(const Plan& plan);

}  // namespace fullshard::testing
