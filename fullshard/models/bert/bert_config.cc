// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/bert/bert_config.h"

#include <fmt/format.h>

#include "fullshard/models/common/config_reader.h"
#include "fullshard/models/common/size_limits.h"

namespace fullshard::models {
namespace {

enum class BertKind { masked, bare, classifier };

// A model with two heads gives its masked one; without a word in the file that one is meant too.
BertKind read_kind(ConfigReader& reader) {
  const auto names = reader.texts("architectures");
  if (names.empty() || names[0] == "BertForMaskedLM" || names[0] == "BertForPreTraining") {
    return BertKind::masked;
  }
  if (names[0] == "BertForSequenceClassification") return BertKind::classifier;
  if (names[0] != "BertModel") {
    reader.refuse(
        "architectures",
        "BertForMaskedLM, BertForPreTraining, BertForSequenceClassification and BertModel "
        "are supported");
  }
  return BertKind::bare;
}

// By number; transformers leaves out what it would assume: two classes, or names after numbers.
std::vector<std::string> read_classes(ConfigReader& reader, const nlohmann::json& config) {
  constexpr int64_t kUsualClasses = 2;
  const auto names = config.find("id2label");
  const bool has_names = names != config.end() && names->is_object() && !names->empty();
  const int64_t count = reader.size(
      "num_labels", has_names ? static_cast<int64_t>(names->size()) : kUsualClasses, kMostRows);
  std::vector<std::string> classes;
  for (int64_t i = 0; i < count; ++i) {
    classes.push_back(fmt::format("LABEL_{}", i));
    if (!has_names) continue;
    const auto name = names->find(std::to_string(i));
    if (name == names->end() || !name->is_string()) {
      reader.refuse("id2label", fmt::format("expected a name for each of {} classes", count));
      return classes;
    }
    classes.back() = name->get<std::string>();
  }
  if (count < kUsualClasses) {
    reader.refuse("id2label", "one class would be a regression, which is not supported");
  }
  return classes;
}

void read_classifier(ConfigReader& reader, const nlohmann::json& config,
                     const StoredWeights& stored, BertConfig& bert) {
  bert.classes = read_classes(reader, config);
  reader.supports_only("problem_type", "single_label_classification");
  bert.classifier_dropout = reader.probability("classifier_dropout", bert.hidden_dropout);
  const std::string pooler = "pooler.dense.weight";
  bert.lacks_pooler = !stored.has("bert." + pooler) && !stored.has(pooler);
}

void read_bert_shape(ConfigReader& reader, const StoredWeights& stored, BertConfig& bert) {
  const auto dimension = [&](const std::string& name, size_t number) {
    return stored.dimension({"bert." + name, name}, number);
  };
  const std::string words = "embeddings.word_embeddings.weight";
  bert.vocabulary = reader.size("vocab_size", bert.vocabulary, kMostRows, dimension(words, 0));
  bert.width = reader.size("hidden_size", bert.width, kMostWidth, dimension(words, 1));
  bert.num_layers = reader.size("num_hidden_layers", bert.num_layers, kMostLayers,
                                stored.num_layers({"bert.encoder.layer.", "encoder.layer."}));
  bert.num_heads = reader.size("num_attention_heads", bert.num_heads, kMostWidth);
  bert.feed_forward_width = reader.size("intermediate_size", bert.feed_forward_width, kMostWidth,
                                        dimension("encoder.layer.0.intermediate.dense.weight", 0));
  bert.max_positions = reader.size("max_position_embeddings", bert.max_positions, kMostRows,
                                   dimension("embeddings.position_embeddings.weight", 0));
  bert.num_token_types = reader.size("type_vocab_size", bert.num_token_types, kMostRows,
                                     dimension("embeddings.token_type_embeddings.weight", 0));
  if (bert.width % bert.num_heads != 0) {
    reader.refuse("num_attention_heads",
                  fmt::format("expected a divisor of hidden_size, which is {}", bert.width));
  }
}

void read_padding(ConfigReader& reader, BertConfig& bert) {
  bert.padding_token = reader.optional_integer("pad_token_id", bert.padding_token);
  if (!bert.padding_token) return;
  if (*bert.padding_token < 0 || *bert.padding_token >= bert.vocabulary) {
    reader.refuse("pad_token_id",
                  fmt::format("expected a token of the vocabulary, which has {}", bert.vocabulary));
  }
}

}  // namespace

BertConfig read_bert_config(const nlohmann::json& config, const std::string& where,
                            const MakeOptions& options) {
  ConfigReader reader(config, where, "BERT model");
  BertConfig bert;
  const BertKind kind = read_kind(reader);
  bert.is_bare = kind == BertKind::bare && !options.needs_head;
  read_bert_shape(reader, options.weights, bert);
  read_padding(reader, bert);
  bert.activation = read_activation(reader, "hidden_act", "gelu");
  bert.hidden_dropout = reader.probability("hidden_dropout_prob", bert.hidden_dropout);
  bert.attention_dropout =
      reader.probability("attention_probs_dropout_prob", bert.attention_dropout);
  bert.epsilon = reader.at_least(0, "layer_norm_eps", bert.epsilon);
  bert.initializer_range = reader.at_least(0, "initializer_range", bert.initializer_range);
  bert.tied_head = reader.flag("tie_word_embeddings", bert.tied_head);
  if (kind == BertKind::classifier) read_classifier(reader, config, options.weights, bert);
  reader.supports_only("position_embedding_type", "absolute");
  reader.supports_only("is_decoder", false);
  reader.supports_only("add_cross_attention", false);
  reader.harmless({"classifier_dropout", "directionality", "pooler_fc_size",
                   "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
                   "pooler_type"});
  reader.finish();
  bert.json = config;
  return bert;
}

}  // namespace fullshard::models
