// SPDX-License-Identifier: Apache-2.0
// LoRA: the weights of a model are frozen, and its linear layers get small ones beside them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/models/lora/lora_options.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace fullshard {

// What add_lora() did.
struct LoraLayers {
  std::vector<std::string> adapted = {};  // paths of the layers, in the order of the module tree
  std::vector<std::string> saved = {};    // of the modules that are trained as a whole
};

// Before the model is sharded, built or deferred, on every rank alike. Every parameter is frozen;
// the fullshard::Linear layers that the options name get parameters `<path>.lora_A.weight` and
// `<path>.lora_B.weight`; the modules to save are trained. Optimizers, gradients and masters are
// then a matter of these alone. An Error of kind usage, before anything is changed: a name that no
// module has (with those that look like it), a module that is no linear layer or is a head, a rank
// below 1, a dropout outside of [0, 1).
LoraLayers add_lora(torch::nn::Module& model, const LoraOptions& options);

// Whether a parameter belongs to an adapter, by its name.
bool is_lora_parameter(const std::string& name);

// The options with the names of target modules in place of "those that PEFT takes for the model":
// an Error of kind usage for a model that PEFT has none for.
LoraOptions with_target_modules(LoraOptions options, const torch::nn::Module& model);

// Freezes the weights of all fullshard::Linear layers but heads and those inside modules to save,
// and keeps them in int8 with a factor for each row: half the memory of bf16. Before the model is
// sharded, after add_lora. Gives the number of layers.
int64_t quantise_base(torch::nn::Module& model);

}  // namespace fullshard
