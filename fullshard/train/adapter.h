// SPDX-License-Identifier: Apache-2.0
// LoRA adapters of a sharded model, in and out of PEFT's folders: adapter_config.json and
// adapter_model.safetensors.
//
//   const auto lora = LoraOptions{.rank = 16, .alpha = 32};
//   add_lora(*model, lora);                       // before it is sharded
//   auto sharded = shard(model, world);
//   load_model_weights(folder, *model, sharded);  // the base
//   draw_adapters(sharded, seed);                 // or load_adapter(folder, sharded)
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/engine/sharded_model.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/models/lora/adapter_config.h"

namespace fullshard {

// Collective. New values for all adapters, by (seed, name) alone: lora_A uniform as PEFT draws it,
// lora_B zeros, so that nothing changes until they are trained.
void draw_adapters(ShardedModel& model, uint64_t seed);

// What adapter_config.json says of a model with such adapters. `base_model` is where PEFT will look
// for the base.
AdapterConfig adapter_config_of(const LanguageModel& model, const LoraOptions& options,
                                const std::string& base_model);

struct SaveAdapterOptions {
  at::ScalarType dtype = at::kFloat;
  std::string tokenizer = {};  // a folder or file whose tokenizer is copied along; may be empty
  // The model's config.json, where the base's folder has another: the classes of a classifier.
  std::string config_json = {};
};
// Collective. Writes `folder` as a whole or not at all, for PEFT and for load_adapter(): adapters
// and modules to save, which are the parameters that are trained. One that is there is replaced.
void save_adapter(const std::string& folder, ShardedModel& model, const AdapterConfig& config,
                  const SaveAdapterOptions& options = {});
// The two files alone, into a folder that is there.
void write_adapter_files(const std::string& folder, ShardedModel& model,
                         const AdapterConfig& config, const SaveAdapterOptions& options = {});

// Of a folder that PEFT or save_adapter() wrote, or the name of one in the Hugging Face cache. An
// Error of kind input where it is none.
AdapterConfig load_adapter_config(const std::string& folder);
// Collective. The values of all adapters, and of modules that were saved whole. The model has had
// add_lora() with the folder's options. A tensor that is missing, extra or of another shape is an
// Error of kind input that names all of them: an adapter of another base, most often. `required`
// are parameters that the base lacks: a head that was trained with the adapter.
void load_adapter(const std::string& folder, ShardedModel& model,
                  const std::vector<std::string>& required = {});

namespace train {

// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
LanguageModel::FileName adapter_file_name(const torch::nn::Module& model,
                                          const std::string& parameter);
// adapter_model.safetensors, or PEFT's older adapter_model.bin.
std::string adapter_weights_in(const std::string& folder);

}  // namespace train
}  // namespace fullshard
