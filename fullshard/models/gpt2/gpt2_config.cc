// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/gpt2/gpt2_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "fullshard/models/common/config_reader.h"
#include "fullshard/models/common/size_limits.h"

namespace fullshard::models {
namespace {

void read_gpt2_sizes(ConfigReader& reader, const StoredWeights& stored, Gpt2Config& result) {
  const auto dimension = [&](const std::string& name, size_t number) {
    return stored.dimension({"transformer." + name, name}, number);
  };
  const auto heads = reader.one_of({"num_attention_heads", "n_head"});
  const auto positions = reader.one_of({"max_position_embeddings", "n_positions"});
  const auto width = reader.one_of({"hidden_size", "n_embd"});
  const auto layers = reader.one_of({"num_hidden_layers", "n_layer"});
  result.vocabulary = reader.size("vocab_size", 50257, kMostRows, dimension("wte.weight", 0));
  result.positions = reader.size(positions, 1024, kMostRows, dimension("wpe.weight", 0));
  result.width = reader.size(width, 768, kMostWidth, dimension("wte.weight", 1));
  result.num_layers =
      reader.size(layers, 12, kMostLayers, stored.num_layers({"transformer.h.", "h."}));
  result.num_heads = reader.size(heads, 12, kMostWidth);
  result.inner_width =
      reader.size("n_inner", 4 * result.width, 4 * kMostWidth, dimension("h.0.mlp.c_fc.weight", 1));
  if (result.width % result.num_heads != 0) {
    reader.refuse(heads, fmt::format("expected a divisor of the width {}", result.width));
  }
}

}  // namespace

Gpt2Config read_gpt2_config(const nlohmann::json& config, const std::string& where,
                            const MakeOptions& options) {
  ConfigReader reader(config, where, "GPT2LMHeadModel");
  Gpt2Config result;
  read_gpt2_sizes(reader, options.weights, result);
  result.activation = read_activation(reader, "activation_function", "gelu_new");
  result.embedding_dropout = reader.probability("embd_pdrop", 0.1);
  result.attention_dropout = reader.probability("attn_pdrop", 0.1);
  result.residual_dropout = reader.probability("resid_pdrop", 0.1);
  result.norm_epsilon = reader.at_least(0, "layer_norm_epsilon", 1e-5);
  result.deviation = reader.at_least(0, "initializer_range", 0.02);
  result.scales_scores = reader.flag("scale_attn_weights", true);
  result.scales_scores_by_layer = reader.flag("scale_attn_by_inverse_layer_idx", false);
  result.tied = reader.flag("tie_word_embeddings", true);
  // The sums of attention() are in fp32 anyway; the summary belongs to other heads.
  reader.harmless({"reorder_and_upcast_attn", "n_ctx", "summary_type", "summary_use_proj",
                   "summary_activation", "summary_proj_to_labels", "summary_first_dropout"});
  reader.finish();
  return result;
}

}  // namespace fullshard::models
