// SPDX-License-Identifier: Apache-2.0
// Optimizers over a sharded model, learning-rate schedules, loss scaling, and the step that joins
// them.
#pragma once

#include "fullshard/optim/adagrad.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/defaults.h"
#include "fullshard/optim/lamb.h"
#include "fullshard/optim/lion.h"
#include "fullshard/optim/loss_scaler.h"
#include "fullshard/optim/lr_scheduler.h"
#include "fullshard/optim/one_bit_adam.h"
#include "fullshard/optim/optimizer.h"
#include "fullshard/optim/parameter_rules.h"
#include "fullshard/optim/precision.h"
#include "fullshard/optim/schedules/cycle_schedules.h"
#include "fullshard/optim/schedules/lr_schedule.h"
#include "fullshard/optim/schedules/lr_torch_schedule.h"
#include "fullshard/optim/schedules/trainer_decays.h"
#include "fullshard/optim/schedules/trainer_schedules.h"
#include "fullshard/optim/schedules/warmup_schedules.h"
#include "fullshard/optim/sgd.h"
#include "fullshard/optim/stepper.h"
#include "fullshard/optim/torch/foreign_optimizer.h"
#include "fullshard/optim/torch/torch_optimizer.h"
