// SPDX-License-Identifier: Apache-2.0
// Planning: what a run would hold, before it runs.
#pragma once

#include "fullshard/planning/estimate.h"
