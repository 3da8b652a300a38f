// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/llama/llama_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fullshard/models/common/config_reader.h"
#include "fullshard/models/common/size_limits.h"

namespace fullshard::models {
namespace {

// Where the configuration classes of the three differ in what an absent key means.
struct Defaults {
  int64_t vocabulary;
  int64_t inner_width;
  int64_t positions;
  std::optional<int64_t> num_kv_heads;  // absent: as many as query heads
};

Defaults defaults_of(LlamaFamily family) {
  switch (family) {
    case LlamaFamily::mistral:
      return {32000, 14336, 131072, 8};
    case LlamaFamily::qwen2:
      return {151936, 22016, 32768, 32};
    case LlamaFamily::llama:
      break;
  }
  return {32000, 11008, 2048, std::nullopt};
}

void read_llama_sizes(ConfigReader& reader, const StoredWeights& stored, LlamaConfig& result) {
  const Defaults defaults = defaults_of(result.family);
  const auto dimension = [&](const std::string& name, size_t number) {
    return stored.dimension({"model." + name, name}, number);
  };
  const std::string words = "embed_tokens.weight";
  result.vocabulary =
      reader.size("vocab_size", defaults.vocabulary, kMostRows, dimension(words, 0));
  result.positions = reader.size("max_position_embeddings", defaults.positions, kMostPositions);
  result.width = reader.size("hidden_size", 4096, kMostWidth, dimension(words, 1));
  result.inner_width = reader.size("intermediate_size", defaults.inner_width, kMostWidth,
                                   dimension("layers.0.mlp.up_proj.weight", 0));
  result.num_layers = reader.size("num_hidden_layers", 32, kMostLayers,
                                  stored.num_layers({"model.layers.", "layers."}));
}

void read_heads(ConfigReader& reader, LlamaConfig& result) {
  const auto default_kv_heads = defaults_of(result.family).num_kv_heads;
  result.num_heads = reader.size("num_attention_heads", 32, kMostWidth);
  result.num_kv_heads =
      reader.optional_integer("num_key_value_heads", default_kv_heads).value_or(result.num_heads);
  if (result.num_kv_heads < 1 || result.num_heads % result.num_kv_heads != 0) {
    reader.refuse("num_key_value_heads",
                  fmt::format("expected a divisor of the {} heads", result.num_heads));
  }
  if (!reader.has("head_dim") && result.width % result.num_heads != 0) {
    reader.refuse("num_attention_heads",
                  fmt::format("expected a divisor of the width {}", result.width));
  }
  result.head_width =
      reader.size("head_dim", std::max<int64_t>(result.width / result.num_heads, 1), kMostWidth);
  if (result.num_heads * result.head_width > kMostWidth) {
    reader.refuse("head_dim",
                  fmt::format("the {} heads are {} wide together, expected at most {}",
                              result.num_heads, result.num_heads * result.head_width, kMostWidth));
  }
  if (result.head_width % 2 != 0) {
    reader.refuse("head_dim", fmt::format("heads are {} wide, but rotary positions turn pairs",
                                          result.head_width));
  }
}

void read_biases(ConfigReader& reader, LlamaConfig& result) {
  if (result.family == LlamaFamily::llama) {
    result.query_bias = result.output_bias = reader.flag("attention_bias", false);
    result.mlp_bias = reader.flag("mlp_bias", false);
  } else {
    result.query_bias = result.family == LlamaFamily::qwen2;
    reader.supports_only("attention_bias", result.query_bias);
    reader.supports_only("mlp_bias", false);
  }
}

// The layers that Qwen2 gives a window: told one by one, or those from max_window_layers on.
std::vector<bool> qwen2_windowed(ConfigReader& reader, int64_t num_layers) {
  const bool uses_window = reader.flag("use_sliding_window", false);
  const int64_t first = reader.integer("max_window_layers", 28);
  const auto types = reader.texts("layer_types");
  std::vector<bool> windowed(num_layers, false);
  for (int64_t layer = 0; uses_window && layer < num_layers; ++layer) {
    windowed[layer] = layer >= first;
  }
  if (types.empty()) return windowed;
  if (static_cast<int64_t>(types.size()) != num_layers) {
    reader.refuse("layer_types",
                  fmt::format("expected one entry for each of {} layers", num_layers));
    return windowed;
  }
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    windowed[layer] = uses_window && types[layer] == "sliding_attention";
    if (types[layer] != "sliding_attention" && types[layer] != "full_attention") {
      reader.refuse("layer_types", "full_attention and sliding_attention are supported");
      break;
    }
  }
  return windowed;
}

void read_windows(ConfigReader& reader, LlamaConfig& result) {
  result.windows.assign(result.num_layers, 0);
  if (result.family == LlamaFamily::llama) {
    const nlohmann::json all_full(result.num_layers, "full_attention");
    return reader.supports_only("layer_types", all_full);
  }
  const auto window = reader.optional_integer("sliding_window", 4096);
  if (window && *window < 1) reader.refuse("sliding_window", "expected an integer above 0 or null");
  std::vector<bool> windowed(result.num_layers, true);
  if (result.family == LlamaFamily::qwen2) windowed = qwen2_windowed(reader, result.num_layers);
  for (int64_t layer = 0; layer < result.num_layers; ++layer) {
    if (windowed[layer]) result.windows[layer] = window.value_or(0);
  }
}

// torch counts negative indices from the end.
int64_t read_padding_token(ConfigReader& reader, int64_t vocabulary) {
  const auto token = reader.optional_integer("pad_token_id", std::nullopt);
  if (!token) return -1;
  if (*token < -vocabulary || *token >= vocabulary) {
    reader.refuse("pad_token_id", fmt::format("the vocabulary has {} tokens", vocabulary));
  }
  return *token < 0 ? *token + vocabulary : *token;
}

}  // namespace

std::string family_name(LlamaFamily family) {
  switch (family) {
    case LlamaFamily::mistral:
      return "Mistral";
    case LlamaFamily::qwen2:
      return "Qwen2";
    case LlamaFamily::llama:
      break;
  }
  return "Llama";
}

std::string family_model_type(LlamaFamily family) {
  switch (family) {
    case LlamaFamily::mistral:
      return "mistral";
    case LlamaFamily::qwen2:
      return "qwen2";
    case LlamaFamily::llama:
      break;
  }
  return "llama";
}

LlamaConfig read_llama_config(LlamaFamily family, const nlohmann::json& config,
                              const std::string& where, const MakeOptions& options) {
  ConfigReader reader(config, where, family_name(family) + "ForCausalLM");
  LlamaConfig result;
  result.family = family;
  read_llama_sizes(reader, options.weights, result);
  read_heads(reader, result);
  read_biases(reader, result);
  read_windows(reader, result);
  result.activation = read_activation(reader, "hidden_act", "silu");
  result.attention_dropout = reader.probability("attention_dropout", 0);
  result.norm_epsilon = reader.at_least(0, "rms_norm_eps", 1e-6);
  result.deviation = reader.at_least(0, "initializer_range", 0.02);
  result.tied = reader.flag("tie_word_embeddings", false);
  result.padding_token = read_padding_token(reader, result.vocabulary);
  result.rope = read_rope(reader, result.positions);
  reader.harmless({"pretraining_tp"});  // cuts products into parts, with the same result
  reader.finish();
  return result;
}

}  // namespace fullshard::models
