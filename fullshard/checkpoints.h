// SPDX-License-Identifier: Apache-2.0
// Saving and loading: training checkpoints, weights as safetensors, checkpoints of other programs.
#pragma once

#include "fullshard/checkpoint/async_saver.h"
#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/checkpoint/foreign_checkpoint.h"
#include "fullshard/checkpoint/fp32_state.h"
#include "fullshard/checkpoint/loop_progress.h"
#include "fullshard/checkpoint/model_io.h"
#include "fullshard/formats/safetensors/safetensors_writer.h"
#include "fullshard/formats/tensor_source.h"
#include "fullshard/formats/weights/open_weights.h"
#include "fullshard/stored/training_progress.h"
