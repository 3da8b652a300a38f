// SPDX-License-Identifier: Apache-2.0
// The options of a T5 config.json.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "fullshard/models/common/activation_function.h"
#include "fullshard/models/common/make_options.h"

namespace fullshard::models {

struct T5Config {
  int64_t vocabulary = 32128;
  int64_t width = 512;
  int64_t head_width = 64;
  int64_t num_heads = 8;
  int64_t feed_forward_width = 2048;
  int64_t num_encoder_layers = 6;
  int64_t num_decoder_layers = 6;
  int64_t num_buckets = 32;
  int64_t max_distance = 128;
  Activation activation = Activation::relu;
  bool is_gated = false;
  double dropout = 0.1;
  double epsilon = 1e-6;
  double initializer_factor = 1;
  // v1.0 multiplies what its head sees by width^-0.5 and uses the embedding as the head; v1.1 does
  // neither. See read_t5_config for files that say one but not the other.
  bool scales_head = true;
  bool own_head = false;
  int64_t padding_token = 0;
  int64_t start_token = 0;  // the first input of the decoder

  // Of all heads together; it need not be the model's width.
  int64_t inner_width() const { return num_heads * head_width; }

  nlohmann::json json;  // what it was read from: config_json() gives it back
};

// `where` names the file in errors. Options that are not supported are one error that lists them.
//
// A published v1.1 config says tie_word_embeddings false. Transformers 5 takes that for "does not
// scale" and writes tie_word_embeddings true with scale_decoder_outputs false; whether the head is
// its own it finds in the weights. So here: a head is its own when the file holds one with other
// values than the embedding's, and else it is the embedding. Without a file tie_word_embeddings
// counts as it stands.
T5Config read_t5_config(const nlohmann::json& config, const std::string& where,
                        const MakeOptions& options = {});

}  // namespace fullshard::models
