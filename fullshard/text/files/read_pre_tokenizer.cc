// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "fullshard/text/files/tokenizer_json.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

SplitBehavior read_behavior(const JsonNode& node) {
  const std::string name = node.text();
  constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous}};
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  node.refuse_value(name);
}

PreTokenizerPointer read_byte_level(const JsonNode& node, bool as_bytes) {
  node.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  return byte_level_pre_tokenizer(
      {node.flag_or("add_prefix_space", true), node.flag_or("use_regex", true), !as_bytes});
}

PreTokenizerPointer read_split(const JsonNode& node) {
  node.only({"type", "pattern", "behavior", "invert"});
  return split_pre_tokenizer(read_pattern(node.at("pattern")), read_behavior(node.at("behavior")),
                             node.flag_or("invert", false));
}

PreTokenizerPointer read_metaspace(const JsonNode& node) {
  node.only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  MetaspaceOptions options;
  options.replacement = node.at("replacement").text();
  if (options.replacement.empty() ||
      utf8_length(options.replacement[0]) != options.replacement.size()) {
    node.at("replacement").refuse("expected one character");
  }
  const std::string scheme = node.text_or("prepend_scheme", "always");
  if (scheme == "never" || !node.flag_or("add_prefix_space", true)) {
    options.prepend = PrependScheme::never;
  } else if (scheme == "first") {
    options.prepend = PrependScheme::first;
  } else if (scheme != "always") {
    node.at("prepend_scheme").refuse_value(scheme);
  }
  options.split = node.flag_or("split", true);
  return metaspace_pre_tokenizer(options);
}

}  // namespace

PreTokenizerPointer read_pre_tokenizer(const JsonNode& node, bool as_bytes, int depth) {
  const std::string type = node.at("type").text();
  if (type == "Sequence") {
    node.only({"type", "pretokenizers"});
    return pre_tokenizer_sequence(
        read_steps(node, "pretokenizers", depth, [&](const JsonNode& step, bool is_last) {
          return read_pre_tokenizer(step, as_bytes && is_last, depth + 1);
        }));
  }
  if (type == "ByteLevel") return read_byte_level(node, as_bytes);
  if (type == "Split") return read_split(node);
  if (type == "Metaspace") return read_metaspace(node);
  if (type == "Digits") {
    node.only({"type", "individual_digits"});
    return digits_pre_tokenizer(node.flag_or("individual_digits", false));
  }
  if (type == "Punctuation") {
    node.only({"type", "behavior"});
    const auto behavior = node.get("behavior");
    return punctuation_pre_tokenizer(behavior ? read_behavior(*behavior) : SplitBehavior::isolated);
  }
  node.only({"type"});
  if (type == "BertPreTokenizer") return bert_pre_tokenizer();
  if (type == "Whitespace") return whitespace_pre_tokenizer();
  if (type == "WhitespaceSplit") return whitespace_split_pre_tokenizer();
  node.at("type").refuse_value(type);
}

}  // namespace fullshard::text
