// SPDX-License-Identifier: Apache-2.0
// Planning: what a run would hold, and how fast a cluster would be, before it runs.
#pragma once

#include "fullshard/planning/estimate.h"
#include "fullshard/simulation/simulate.h"
