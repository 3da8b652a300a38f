// SPDX-License-Identifier: Apache-2.0
// The options of a BERT config.json.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/models/common/activation_function.h"
#include "fullshard/models/common/make_options.h"

namespace fullshard::models {

struct BertConfig {
  int64_t vocabulary = 30522;
  int64_t width = 768;
  int64_t num_layers = 12;
  int64_t num_heads = 12;
  int64_t feed_forward_width = 3072;
  int64_t max_positions = 512;
  int64_t num_token_types = 2;
  Activation activation = Activation::gelu;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  double epsilon = 1e-12;
  double initializer_range = 0.02;
  std::optional<int64_t> padding_token = 0;  // its embedding starts at zero and gets no gradient
  bool tied_head = true;
  bool is_bare = false;  // BertModel: the encoder and its pooler, without a head
  // BertForSequenceClassification: the names of its classes; else empty.
  std::vector<std::string> classes = {};
  double classifier_dropout = 0.1;
  bool lacks_pooler = false;  // the file of weights does: it is part of the new head then

  bool is_classifier() const { return !classes.empty(); }
  nlohmann::json json;  // what it was read from: config_json() gives it back
};

// `where` names the file in errors. Options that are not supported are one error that lists them.
BertConfig read_bert_config(const nlohmann::json& config, const std::string& where,
                            const MakeOptions& options = {});

}  // namespace fullshard::models
