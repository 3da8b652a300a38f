// SPDX-License-Identifier: Apache-2.0
// Opens the weights of a folder, whatever form they have.
#pragma once

#include <memory>
#include <string>

#include "fullshard/formats/tensor_source.h"

namespace fullshard {

// `path` is a folder (model.safetensors; model.safetensors.index.json; pytorch_model.bin;
// pytorch_model.bin.index.json; pytorch_model_fsdp.bin: the first that is there) or one file of
// these kinds; or a training checkpoint of torch.distributed.checkpoint (Accelerate's and the
// Trainer's too) or of DeepSpeed. Indexes and headers are checked whole: a truncated file,
// overlapping or outside offsets, a tensor that an index promises and a file lacks are errors of
// the kind `input`.
std::unique_ptr<TensorSource> open_weights(const std::string& path);
// The same for a file that also holds the optimizer's states (formats/flat_state_dict): all of its
// tensors, under their names in the file.
std::unique_ptr<TensorSource> open_tensors(const std::string& path);
// Whether the folder holds anything that open_weights() opens.
bool holds_weights(const std::string& folder);

}  // namespace fullshard
