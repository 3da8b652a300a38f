// SPDX-License-Identifier: Apache-2.0
// Configuration files of Accelerate, DeepSpeed and the Trainer, as a checked Plan.
#pragma once

#include "fullshard/config/document/problem.h"
#include "fullshard/config/plan.h"
#include "fullshard/config/plan_sections.h"
#include "fullshard/config/run_options.h"
#include "fullshard/config/schema/batch_sizes.h"
