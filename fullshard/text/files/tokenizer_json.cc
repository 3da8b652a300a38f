// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/files/tokenizer_json.h"

namespace fullshard::text {
namespace {

bool ends_with_byte_level(const JsonNode& pre_tokenizer) {
  const std::string type = pre_tokenizer.at("type").text();
  if (type != "Sequence") return type == "ByteLevel";
  const JsonNode steps = pre_tokenizer.at("pretokenizers");
  return steps.size() > 0 && steps.item(steps.size() - 1).at("type").text() == "ByteLevel";
}

void read_added(const JsonNode& list, PipelineParts& parts) {
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonNode node = list.item(i);
    node.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.content = node.at("content").text();
    token.single_word = node.flag_or("single_word", false);
    token.lstrip = node.flag_or("lstrip", false);
    token.rstrip = node.flag_or("rstrip", false);
    token.normalized = node.flag_or("normalized", true);
    token.special = node.flag_or("special", false);
    parts.added.add(token, parts.model->vocabulary(), parts.normalizer.get());
  }
}

}  // namespace

PipelineParts read_tokenizer_json(const JsonNode& root) {
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
             "post_processor", "decoder", "model"});
  if (const auto version = root.get("version"); version && version->text() != "1.0") {
    version->refuse_value(version->text());
  }
  const JsonNode model = root.at("model");
  const auto pre_tokenizer = root.get("pre_tokenizer");
  const bool as_bytes = pre_tokenizer && ends_with_byte_level(*pre_tokenizer) && takes_bytes(model);
  PipelineParts parts;
  if (const auto node = root.get("normalizer")) parts.normalizer = read_normalizer(*node);
  if (pre_tokenizer) parts.pre_tokenizer = read_pre_tokenizer(*pre_tokenizer, as_bytes);
  parts.model = read_model(model, as_bytes);
  if (const auto node = root.get("post_processor"))
    read_post_processor(*node, parts.post_processor);
  if (const auto node = root.get("decoder")) parts.decoder = read_decoder(*node);
  if (const auto node = root.get("added_tokens")) read_added(*node, parts);
  return parts;
}

std::unique_ptr<Pattern> read_pattern(const JsonNode& node) {
  node.only({"String", "Regex"});
  if (const auto text = node.get("String")) return literal_pattern(text->text());
  return regex_pattern(node.at("Regex").text());
}

}  // namespace fullshard::text
