// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/base64.h"
#include "fullshard/text/files/tokenizer_json.h"

namespace fullshard::text {
namespace {

NormalizerPointer read_bert(const JsonNode& node) {
  node.only({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  BertNormalizerOptions options;
  options.clean_text = node.flag_or("clean_text", true);
  options.chinese = node.flag_or("handle_chinese_chars", true);
  options.lowercase = node.flag_or("lowercase", true);
  options.strip_accents = node.flag_or("strip_accents", options.lowercase);
  return bert_normalizer(options);
}

NormalizerPointer read_replace(const JsonNode& node) {
  node.only({"type", "pattern", "content"});
  return replace_normalizer(read_pattern(node.at("pattern")), node.at("content").text());
}

NormalizerPointer read_precompiled(const JsonNode& node) {
  node.only({"type", "precompiled_charsmap"});
  const auto blob = base::decode_base64(node.at("precompiled_charsmap").text());
  if (!blob) node.at("precompiled_charsmap").refuse("is not base64");
  return precompiled_normalizer(Charsmap(*blob));
}

NormalizerPointer read_strip(const JsonNode& node) {
  node.only({"type", "strip_left", "strip_right"});
  return strip_normalizer(node.flag_or("strip_left", true), node.flag_or("strip_right", true));
}

NormalizerPointer read_prepend(const JsonNode& node) {
  node.only({"type", "prepend"});
  return prepend_normalizer(node.at("prepend").text());
}

}  // namespace

NormalizerPointer read_normalizer(const JsonNode& node, int depth) {
  const std::string type = node.at("type").text();
  if (type == "Sequence") {
    node.only({"type", "normalizers"});
    return normalizer_sequence(
        read_steps(node, "normalizers", depth,
                   [&](const JsonNode& step, bool) { return read_normalizer(step, depth + 1); }));
  }
  if (type == "BertNormalizer") return read_bert(node);
  if (type == "Replace") return read_replace(node);
  if (type == "Precompiled") return read_precompiled(node);
  if (type == "Strip") return read_strip(node);
  if (type == "Prepend") return read_prepend(node);
  node.only({"type"});
  if (type == "NFC") return form_normalizer(NormalForm::nfc);
  if (type == "NFD") return form_normalizer(NormalForm::nfd);
  if (type == "NFKC") return form_normalizer(NormalForm::nfkc);
  if (type == "NFKD") return form_normalizer(NormalForm::nfkd);
  if (type == "Lowercase") return lowercase_normalizer();
  if (type == "StripAccents") return strip_accents_normalizer();
  if (type == "Nmt") return nmt_normalizer();
  node.at("type").refuse_value(type);
}

}  // namespace fullshard::text
