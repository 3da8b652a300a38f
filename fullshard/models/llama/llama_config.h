// SPDX-License-Identifier: Apache-2.0
// The settings of a Llama, Mistral or Qwen2, from its config.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/models/common/activation_function.h"
#include "fullshard/models/common/make_options.h"
#include "fullshard/models/llama/rope.h"

namespace fullshard::models {

enum class LlamaFamily { llama, mistral, qwen2 };

struct LlamaConfig {
  LlamaFamily family = LlamaFamily::llama;
  int64_t vocabulary = 0;
  int64_t positions = 0;
  int64_t width = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_width = 0;
  int64_t inner_width = 0;
  Activation activation = Activation::silu;
  double attention_dropout = 0;
  double norm_epsilon = 0;
  double deviation = 0;      // of the first weights
  bool query_bias = false;   // of query, key and value
  bool output_bias = false;  // of attention's output
  bool mlp_bias = false;
  bool tied = false;                  // the head is the embedding
  int64_t padding_token = -1;         // its row gets no gradient as an input; -1: none
  std::vector<int64_t> windows = {};  // of each layer, 0: all keys
  RopeConfig rope = {};
};

// "Llama", "Mistral", "Qwen2": the beginning of its class names.
std::string family_name(LlamaFamily family);
std::string family_model_type(LlamaFamily family);  // "llama"

// Throws an Error (kind input) that lists every option that is not supported.
LlamaConfig read_llama_config(LlamaFamily family, const nlohmann::json& config,
                              const std::string& where, const MakeOptions& options = {});

}  // namespace fullshard::models
