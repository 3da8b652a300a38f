// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/t5/t5_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "fullshard/models/common/config_reader.h"
#include "fullshard/models/common/size_limits.h"

namespace fullshard::models {
namespace {

constexpr const char* kT5Head = "lm_head.weight";
// The embedding, under any of its names.
constexpr std::array kT5Words = {"shared.weight", "encoder.embed_tokens.weight",
                                 "decoder.embed_tokens.weight"};

void read_architecture(ConfigReader& reader) {
  const auto names = reader.texts("architectures");
  const bool known =
      names.empty() || names[0] == "T5ForConditionalGeneration" || names[0] == "T5WithLMHeadModel";
  if (!known) reader.refuse("architectures", "T5ForConditionalGeneration is supported");
  reader.supports_only("is_encoder_decoder", true);
  reader.supports_only("is_decoder", false);
}

void read_t5_shape(ConfigReader& reader, const StoredWeights& stored, T5Config& t5) {
  const auto words = [&](size_t dimension) {
    return stored.dimension({kT5Words[0], kT5Words[1], kT5Words[2]}, dimension);
  };
  const std::string feed_forward = "encoder.block.0.layer.1.DenseReluDense.";
  t5.vocabulary = reader.size("vocab_size", t5.vocabulary, kMostRows, words(0));
  t5.width = reader.size("d_model", t5.width, kMostWidth, words(1));
  t5.head_width = reader.size("d_kv", t5.head_width, kMostWidth);
  t5.num_heads = reader.size("num_heads", t5.num_heads, kMostWidth);
  t5.feed_forward_width =
      reader.size("d_ff", t5.feed_forward_width, kMostWidth,
                  stored.dimension({feed_forward + "wi.weight", feed_forward + "wi_0.weight"}, 0));
  t5.num_encoder_layers = reader.size("num_layers", t5.num_encoder_layers, kMostLayers,
                                      stored.num_layers({"encoder.block."}));
  t5.num_decoder_layers = reader.size("num_decoder_layers", t5.num_encoder_layers, kMostLayers,
                                      stored.num_layers({"decoder.block."}));
  if (t5.inner_width() > kMostWidth) {
    reader.refuse("d_kv", fmt::format("num_heads times d_kv is {}, expected at most {}",
                                      t5.inner_width(), kMostWidth));
  }
}

// The encoder halves the buckets by direction, and half of what is left is for single distances.
void read_positions(ConfigReader& reader, T5Config& t5) {
  t5.num_buckets = reader.size("relative_attention_num_buckets", t5.num_buckets, kMostWidth);
  t5.max_distance = reader.size("relative_attention_max_distance", t5.max_distance, kMostPositions);
  if (t5.num_buckets < 4) {
    reader.refuse("relative_attention_num_buckets", "expected an integer of at least 4");
  } else if (t5.max_distance <= t5.num_buckets / 2) {
    reader.refuse("relative_attention_max_distance",
                  fmt::format("expected more than half of relative_attention_num_buckets, "
                              "which is {}",
                              t5.num_buckets));
  }
}

// "relu", or "gated-" and a name; "gated-gelu" has always meant the approximation.
void read_feed_forward(ConfigReader& reader, T5Config& t5) {
  constexpr std::string_view kGated = "gated-";
  const std::string text = reader.text("feed_forward_proj", "relu");
  reader.harmless({"dense_act_fn", "is_gated_act"});  // they follow from it
  t5.is_gated = text.starts_with(kGated);
  std::string name = t5.is_gated ? text.substr(kGated.size()) : text;
  if (text == "gated-gelu") name = "gelu_new";
  const auto activation = activation_named(name);
  if (!activation) {
    return reader.refuse("feed_forward_proj",
                         "expected relu, gelu, gelu_new or silu, or gated- and one of them");
  }
  t5.activation = *activation;
  if (activation_named(reader.text("dense_act_fn", name)) != activation) {
    reader.refuse("dense_act_fn", fmt::format("expected {}, as feed_forward_proj says", name));
  }
  if (reader.flag("is_gated_act", t5.is_gated) != t5.is_gated) {
    reader.refuse("is_gated_act",
                  fmt::format("expected {}, as feed_forward_proj says", t5.is_gated));
  }
}

void read_head(ConfigReader& reader, const StoredWeights& stored, T5Config& t5) {
  const bool tied = reader.flag("tie_word_embeddings", true);
  t5.scales_head = reader.flag("scale_decoder_outputs", tied);
  if (!stored.are_there()) {
    t5.own_head = !tied;
    return;
  }
  // A torch file that was saved from a tied model holds the same values under both names.
  const auto is_head = [&](const char* words) { return stored.are_equal(words, kT5Head); };
  t5.own_head = stored.has(kT5Head) && std::ranges::none_of(kT5Words, is_head);
}

int64_t read_token(ConfigReader& reader, std::string_view key, int64_t otherwise,
                   int64_t vocabulary) {
  const int64_t token = reader.integer(key, otherwise);
  if (token < 0 || token >= vocabulary) {
    reader.refuse(key, fmt::format("expected a token of the vocabulary, which has {}", vocabulary));
  }
  return token;
}

}  // namespace

T5Config read_t5_config(const nlohmann::json& config, const std::string& where,
                        const MakeOptions& options) {
  ConfigReader reader(config, where, "T5 model");
  T5Config t5;
  read_architecture(reader);
  read_t5_shape(reader, options.weights, t5);
  read_positions(reader, t5);
  read_feed_forward(reader, t5);
  read_head(reader, options.weights, t5);
  t5.dropout = reader.probability("dropout_rate", t5.dropout);
  t5.epsilon = reader.at_least(0, "layer_norm_epsilon", t5.epsilon);
  t5.initializer_factor = reader.at_least(0, "initializer_factor", t5.initializer_factor);
  t5.padding_token = read_token(reader, "pad_token_id", t5.padding_token, t5.vocabulary);
  t5.start_token = read_token(reader, "decoder_start_token_id", t5.padding_token, t5.vocabulary);
  reader.harmless({"classifier_dropout", "n_positions"});
  reader.finish();
  t5.json = config;
  return t5;
}

}  // namespace fullshard::models
