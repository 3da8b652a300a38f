// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/files/tokenizer_json.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

DecoderPointer read_metaspace_decoder(const JsonNode& node) {
  node.only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  const std::string replacement = node.at("replacement").text();
  if (replacement.empty()) node.at("replacement").refuse("expected one character");
  const bool keep_first = node.text_or("prepend_scheme", "always") == "never" ||
                          !node.flag_or("add_prefix_space", true);
  return metaspace_decoder(replacement, keep_first);
}

DecoderPointer read_strip_decoder(const JsonNode& node) {
  node.only({"type", "content", "start", "stop"});
  const std::string content = node.at("content").text();
  if (content.empty() || utf8_length(content[0]) != content.size()) {
    node.at("content").refuse("expected one character");
  }
  return strip_decoder(content, static_cast<size_t>(node.at("start").id()),
                       static_cast<size_t>(node.at("stop").id()));
}

DecoderPointer read_word_piece_decoder(const JsonNode& node) {
  node.only({"type", "prefix", "cleanup"});
  return word_piece_decoder(node.text_or("prefix", "##"), node.flag_or("cleanup", true));
}

DecoderPointer read_replace_decoder(const JsonNode& node) {
  node.only({"type", "pattern", "content"});
  return replace_decoder(read_pattern(node.at("pattern")), node.at("content").text());
}

}  // namespace

DecoderPointer read_decoder(const JsonNode& node, int depth) {
  const std::string type = node.at("type").text();
  if (type == "Sequence") {
    node.only({"type", "decoders"});
    return decoder_sequence(read_steps(node, "decoders", depth, [&](const JsonNode& step, bool) {
      return read_decoder(step, depth + 1);
    }));
  }
  if (type == "WordPiece") return read_word_piece_decoder(node);
  if (type == "Metaspace") return read_metaspace_decoder(node);
  if (type == "Replace") return read_replace_decoder(node);
  if (type == "Strip") return read_strip_decoder(node);
  if (type == "ByteLevel") {
    node.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    return byte_level_decoder();
  }
  node.only({"type"});
  if (type == "ByteFallback") return byte_fallback_decoder();
  if (type == "Fuse") return fuse_decoder();
  node.at("type").refuse_value(type);
}

}  // namespace fullshard::text
