#include "fullshard/models/gpt2/gpt2_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "fullshard/models/common/config_reader.h"

namespace fullshard {
namespace {

void read_gpt2_sizes(ConfigReader& reader, Gpt2Config& result) {
  const auto heads = reader.one_of({"num_attention_heads", "n_head"});
  result.vocabulary = reader.positive("vocab_size", 50257);
  result.positions =
      reader.positive(reader.one_of({"max_position_embeddings", "n_positions"}), 1024);
  result.width = reader.positive(reader.one_of({"hidden_size", "n_embd"}), 768);
  result.num_layers = reader.positive(reader.one_of({"num_hidden_layers", "n_layer"}), 12);
  result.num_heads = reader.positive(heads, 12);
  result.inner_width = reader.positive("n_inner", 4 * result.width);
  if (result.width % result.num_heads != 0) {
    reader.refuse(heads, fmt::format("expected a divisor of the width {}", result.width));
  }
}

}  // namespace

Gpt2Config read_gpt2_config(const nlohmann::json& config, const std::string& where) {
  ConfigReader reader(config, where, "GPT2LMHeadModel");
  Gpt2Config result;
  read_gpt2_sizes(reader, result);
  result.activation = read_activation(reader, "activation_function", "gelu_new");
  result.embedding_dropout = reader.probability("embd_pdrop", 0.1);
  result.attention_dropout = reader.probability("attn_pdrop", 0.1);
  result.residual_dropout = reader.probability("resid_pdrop", 0.1);
  result.norm_epsilon = reader.number("layer_norm_epsilon", 1e-5);
  result.deviation = reader.number("initializer_range", 0.02);
  result.scales_scores = reader.flag("scale_attn_weights", true);
  result.scales_scores_by_layer = reader.flag("scale_attn_by_inverse_layer_idx", false);
  result.tied = reader.flag("tie_word_embeddings", true);
  // The sums of attention() are in fp32 anyway; the summary belongs to other heads.
  reader.harmless({"reorder_and_upcast_attn", "n_ctx", "summary_type", "summary_use_proj",
                   "summary_activation", "summary_proj_to_labels", "summary_first_dropout"});
  reader.finish();
  return result;
}

}  // namespace fullshard
