// SPDX-License-Identifier: Apache-2.0
// The settings of a GPT-2, from its config.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "fullshard/models/common/activation_function.h"
#include "fullshard/models/common/make_options.h"

namespace fullshard::models {

struct Gpt2Config {
  int64_t vocabulary = 0;
  int64_t positions = 0;
  int64_t width = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t inner_width = 0;
  Activation activation = Activation::gelu_tanh;
  double embedding_dropout = 0;
  double attention_dropout = 0;
  double residual_dropout = 0;
  double norm_epsilon = 0;
  double deviation = 0;                 // of the first weights
  bool scales_scores = true;            // by 1/sqrt(head width)
  bool scales_scores_by_layer = false;  // and by 1/(layer + 1)
  bool tied = true;                     // the head is the embedding
};

// Throws an Error (kind input) that lists every option that is not supported.
Gpt2Config read_gpt2_config(const nlohmann::json& config, const std::string& where,
                            const MakeOptions& options = {});

}  // namespace fullshard::models
