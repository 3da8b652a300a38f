// SPDX-License-Identifier: Apache-2.0
// The trainer and its parts: what `fullshard train` does, as calls.
#pragma once

#include "fullshard/report/records/run_record.h"
#include "fullshard/report/records/step_record.h"
#include "fullshard/train/adapter.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/train/batch_tensors.h"
#include "fullshard/train/compare.h"
#include "fullshard/train/epoch_vote.h"
#include "fullshard/train/evaluate.h"
#include "fullshard/train/evaluation_scope.h"
#include "fullshard/train/loss_weight.h"
#include "fullshard/train/merge_adapter.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/model_weights.h"
#include "fullshard/train/own_optimizer.h"
#include "fullshard/train/run/run_log.h"
#include "fullshard/train/run/trainer.h"
