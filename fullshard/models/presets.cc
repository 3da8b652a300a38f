// SPDX-License-Identifier: Apache-2.0
// Sizes that people train by name. The GPT-2 and Llama ones are those of the benchmarks; positions
// are those of GPT-2, TinyLlama (1.1b), Llama 3.2 (3b), Llama 3 (8b) and BERT.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/models/model_folder.h"

namespace fullshard {
namespace {

using nlohmann::json;
using Presets = std::vector<std::pair<std::string, json>>;

// Without dropout: a model that sees each token once has nothing to unlearn.
json gpt2(int64_t layers, int64_t width, int64_t heads) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"activation_function", "gelu_new"},
          {"attn_pdrop", 0.0},
          {"bos_token_id", 50256},
          {"embd_pdrop", 0.0},
          {"eos_token_id", 50256},
          {"initializer_range", 0.02},
          {"layer_norm_epsilon", 1e-5},
          {"n_embd", width},
          {"n_head", heads},
          {"n_layer", layers},
          {"n_positions", 1024},
          {"resid_pdrop", 0.0},
          {"tie_word_embeddings", true},
          {"vocab_size", 50304}};
}

struct LlamaSize {
  int64_t layers;
  int64_t width;
  int64_t heads;
  int64_t kv_heads;
  int64_t inner_width;
  int64_t vocabulary;
  bool tied;
  int64_t positions = 2048;
};

json llama(const LlamaSize& size) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"bos_token_id", 1},
          {"eos_token_id", 2},
          {"head_dim", size.width / size.heads},
          {"hidden_act", "silu"},
          {"hidden_size", size.width},
          {"initializer_range", 0.02},
          {"intermediate_size", size.inner_width},
          {"max_position_embeddings", size.positions},
          {"mlp_bias", false},
          {"num_attention_heads", size.heads},
          {"num_hidden_layers", size.layers},
          {"num_key_value_heads", size.kv_heads},
          {"rms_norm_eps", 1e-6},
          {"rope_parameters", {{"rope_theta", 10000.0}, {"rope_type", "default"}}},
          {"tie_word_embeddings", size.tied},
          {"vocab_size", size.vocabulary}};
}

json bert_base() {
  return {{"architectures", {"BertForMaskedLM"}},
          {"model_type", "bert"},
          {"attention_probs_dropout_prob", 0.1},
          {"hidden_act", "gelu"},
          {"hidden_dropout_prob", 0.1},
          {"hidden_size", 768},
          {"initializer_range", 0.02},
          {"intermediate_size", 3072},
          {"layer_norm_eps", 1e-12},
          {"max_position_embeddings", 512},
          {"num_attention_heads", 12},
          {"num_hidden_layers", 12},
          {"pad_token_id", 0},
          {"tie_word_embeddings", true},
          {"type_vocab_size", 2},
          {"vocab_size", 30522}};
}

struct T5Size {
  int64_t width;
  int64_t inner_width;
  int64_t layers;
  int64_t heads;
  bool is_v1_1;
};

json t5(const T5Size& size) {
  return {{"architectures", {"T5ForConditionalGeneration"}},
          {"model_type", "t5"},
          {"d_ff", size.inner_width},
          {"d_kv", 64},
          {"d_model", size.width},
          {"decoder_start_token_id", 0},
          {"dropout_rate", 0.1},
          {"eos_token_id", 1},
          {"feed_forward_proj", size.is_v1_1 ? "gated-gelu" : "relu"},
          {"initializer_factor", 1.0},
          {"is_encoder_decoder", true},
          {"layer_norm_epsilon", 1e-6},
          {"num_decoder_layers", size.layers},
          {"num_heads", size.heads},
          {"num_layers", size.layers},
          {"pad_token_id", 0},
          {"relative_attention_max_distance", 128},
          {"relative_attention_num_buckets", 32},
          {"tie_word_embeddings", !size.is_v1_1},
          {"vocab_size", 32128}};
}

Presets presets() {
  return {
      {"gpt2-124m", gpt2(12, 768, 12)},
      {"gpt2-350m", gpt2(24, 1024, 16)},
      {"llama-tiny", llama({3, 96, 3, 3, 256, 320, true})},
      {"llama-15m", llama({6, 288, 6, 6, 768, 32000, true})},
      {"llama-110m", llama({12, 768, 12, 12, 2048, 32000, true})},
      {"llama-1.1b", llama({22, 2048, 32, 4, 5632, 32000, false})},
      {"llama-3b", llama({28, 3072, 24, 8, 8192, 128256, true, 131072})},
      {"llama-8b", llama({32, 4096, 32, 8, 14336, 128256, false, 8192})},
      {"bert-base", bert_base()},
      {"t5-small", t5({512, 2048, 6, 8, false})},
      {"t5-base", t5({768, 3072, 12, 12, false})},
      {"t5-v1_1-small", t5({512, 1024, 8, 6, true})},
  };
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (auto& [name, config] : presets()) names.push_back(name);
  return names;
}

std::string preset_config(const std::string& name) {
  for (const auto& [known, config] : presets()) {
    if (known == name) return config.dump(2) + "\n";
  }
  fail_as(ErrorKind::usage, "model \"{}\": no such preset; there are {}", name,
          fmt::join(preset_names(), ", "));
}

}  // namespace fullshard
