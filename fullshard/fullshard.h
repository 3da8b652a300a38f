// SPDX-License-Identifier: Apache-2.0
// Fullshard, as users include it: everything, or one area at a time. docs/api.md lists what they
// declare. What is not declared in namespace fullshard itself is internal and may change.
#pragma once

#include "fullshard/checkpoints.h"
#include "fullshard/configuration.h"
#include "fullshard/data.h"
#include "fullshard/generation.h"
#include "fullshard/models.h"
#include "fullshard/optimizers.h"
#include "fullshard/planning.h"
#include "fullshard/sharding.h"
#include "fullshard/training.h"
