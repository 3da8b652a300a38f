// SPDX-License-Identifier: Apache-2.0
// A ready model's weights in and out, by the names that Hugging Face files use.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/checkpoint/model_io.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/models/lora/adapter_config.h"
#include "fullshard/stored/model_record.h"

namespace fullshard {

// How files name the model's tensors.
LoadOptions load_options_of(const LanguageModel& model);
// The same for a checkpoint, with the model's configuration.
stored::ModelRecord record_of(const LanguageModel& model);
// Of a model with adapters, of which checkpoints hold what is trained: under PEFT's names.
stored::ModelRecord record_of(const LanguageModel& model, const AdapterConfig& adapter);

// Parameters that get new values although the others are loaded, as a head that the file lacks.
struct NewParameters {
  std::vector<std::string> names = {};
  uint64_t seed = 0;
};

// Collective, all of them. Adapters get no values by the first two: train/adapter.h gives them.
void load_model_weights(const std::string& folder, const LanguageModel& model,
                        ShardedModel& sharded, const NewParameters& drawn = {});
void make_new_weights(const LanguageModel& model, ShardedModel& sharded, uint64_t seed);

// A config.json with the dtype of the weights beside it, which transformers loads them in; the rest
// stays as it was.
std::string config_with_dtype(const std::string& config_json, at::ScalarType dtype);

struct SaveModelOptions {
  at::ScalarType dtype = at::kFloat;
  std::string tokenizer = {};  // a folder or file whose tokenizer is copied along; may be empty
};
// Writes `folder` as a whole or not at all: config.json, weights, tokenizer. One that is there is
// replaced.
void save_model_folder(const std::string& folder, const LanguageModel& model, ShardedModel& sharded,
                       const SaveModelOptions& options = {});
// config.json and weights, in fp32 and under the names of files, into a folder that is there.
void write_whole_weights(const std::string& folder, const LanguageModel& model,
                         ShardedModel& sharded);

}  // namespace fullshard
