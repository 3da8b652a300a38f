// SPDX-License-Identifier: Apache-2.0
// adapter_config.json: a LoRA adapter as PEFT writes and reads it.
#pragma once

#include <string>

#include "fullshard/models/lora/lora_options.h"

namespace fullshard {

struct AdapterConfig {
  LoraOptions lora = {};
  std::string base_model = {};  // base_model_name_or_path; empty: not known
  std::string task_type = {};   // "CAUSAL_LM"; empty: none
  bool fan_in_fan_out = false;  // the base has weights [inputs, outputs] (GPT-2's Conv1D)
};

// Of the text of an adapter_config.json; `where` names it in errors. Names that the model lacks are
// passed over, as PEFT does. What is no LoRA, or LoRA of a kind that is not supported (DoRA,
// trained biases, layers by number, an initialisation that changes the base), is one Error of kind
// input that lists all of it.
AdapterConfig parse_adapter_config(const std::string& text, const std::string& where);

// As PEFT writes it: sorted keys, two spaces.
std::string adapter_config_text(const AdapterConfig& config);

}  // namespace fullshard
