// SPDX-License-Identifier: Apache-2.0
// fp32 weights of a checkpoint of any kind, in memory: what DeepSpeed's
// get_fp32_state_dict_from_zero_checkpoint and load_state_dict_from_zero_checkpoint give.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "fullshard/checkpoint/model_io.h"
#include "fullshard/engine/sharded_model.h"

namespace fullshard {

// Every weight by name, floating ones in fp32; tied names share one tensor. All of it is in memory
// at once: `fullshard checkpoint to-fp32` and export_weights() stream instead. Not collective.
std::map<std::string, at::Tensor> fp32_state(const std::string& folder,
                                             const std::string& tag = "");

// Collective. Into a sharded model, each rank reading what it owns; the optimizer is left alone.
void load_fp32(ShardedModel& model, const std::string& folder, const LoadOptions& options = {});

// Collective. The weights of a live model as safetensors (model_io.h), in a folder that is made
// when it is not there; the model stays as it is.
void save_model(const std::string& folder, ShardedModel& model, const SaveOptions& options = {});

}  // namespace fullshard
