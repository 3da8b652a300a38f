// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "fullshard/text/files/package_number.h"
#include "fullshard/text/files/tokenizer_json.h"
#include "fullshard/text/models/bpe.h"
#include "fullshard/text/models/unigram.h"
#include "fullshard/text/models/wordpiece.h"

namespace fullshard::text {
namespace {

// Old files do not name the type; their keys show it.
std::string type_of(const JsonNode& node) {
  if (const auto type = node.get("type")) return type->text();
  if (node.get("merges")) return "BPE";
  return node.get("unk_id") ? "Unigram" : "WordPiece";
}

Vocabulary read_vocabulary(const JsonNode& node) {
  if (!node.value().is_object()) node.refuse("expected an object of tokens and ids");
  Vocabulary vocabulary;
  for (const auto& [token, id] : node.value().items()) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 ||
        id.get<int64_t>() > std::numeric_limits<int32_t>::max()) {
      node.refuse(fmt::format("the id of \"{}\" is {}, expected a whole number", token, id.dump()));
    }
    vocabulary.insert(token, id.get<int32_t>());
  }
  return vocabulary;
}

// "a b" or ["a", "b"].
Bpe::Pair read_merge(const JsonNode& node) {
  if (node.value().is_array()) {
    if (node.size() != 2) node.refuse("expected two tokens");
    return {node.item(0).text(), node.item(1).text()};
  }
  const std::string text = node.text();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    node.refuse(fmt::format("is \"{}\", expected two tokens with a space between", text));
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

std::unique_ptr<const Model> read_bpe(const JsonNode& node, bool as_bytes) {
  node.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
             "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (const auto dropout = node.get("dropout"); dropout && dropout->real() != 0) {
    dropout->refuse(fmt::format("{} is not supported, expected none", dropout->real()));
  }
  BpeOptions options;
  options.unknown = node.text_or("unk_token", "");
  options.continuing_prefix = node.text_or("continuing_subword_prefix", "");
  options.end_of_word_suffix = node.text_or("end_of_word_suffix", "");
  options.fuse_unknown = node.flag_or("fuse_unk", false);
  options.byte_fallback = node.flag_or("byte_fallback", false);
  options.ignore_merges = node.flag_or("ignore_merges", false);
  options.byte_level = as_bytes;
  std::vector<Bpe::Pair> merges;
  const JsonNode list = node.at("merges");
  for (size_t i = 0; i < list.size(); ++i) merges.push_back(read_merge(list.item(i)));
  return std::make_unique<Bpe>(read_vocabulary(node.at("vocab")), merges, options);
}

std::unique_ptr<const Model> read_word_piece(const JsonNode& node) {
  node.only(
      {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  WordPieceOptions options;
  options.unknown = node.text_or("unk_token", options.unknown);
  options.continuing_prefix = node.text_or("continuing_subword_prefix", options.continuing_prefix);
  if (const auto longest = node.get("max_input_chars_per_word")) {
    options.longest_word = static_cast<size_t>(std::max<int64_t>(longest->number(), 0));
  }
  return std::make_unique<WordPiece>(read_vocabulary(node.at("vocab")), options);
}

std::unique_ptr<const Model> read_unigram(const JsonNode& node) {
  constexpr double kUnknownPenalty = 10;
  node.only({"type", "unk_id", "vocab", "byte_fallback"});
  const JsonNode list = node.at("vocab");
  Vocabulary vocabulary;
  std::vector<std::optional<double>> scores;
  double smallest = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonNode entry = list.item(i);
    vocabulary.insert(entry.item(0).text(), static_cast<int32_t>(i));
    scores.emplace_back(as_package_reads(entry.item(1).real()));
    smallest = std::min(smallest, *scores.back());
  }
  UnigramOptions options;
  if (const auto unknown = node.get("unk_id")) {
    options.unknown = unknown->id();
    if (static_cast<size_t>(options.unknown) >= scores.size()) {
      unknown->refuse(
          fmt::format("is {}, but there are {} tokens", options.unknown, scores.size()));
    }
  }
  options.unknown_score = smallest - kUnknownPenalty;
  options.byte_fallback = node.flag_or("byte_fallback", false);
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), options);
}

}  // namespace

bool takes_bytes(const JsonNode& model) {
  return type_of(model) == "BPE" && !model.flag_or("byte_fallback", false) &&
         model.text_or("continuing_subword_prefix", "").empty() &&
         model.text_or("end_of_word_suffix", "").empty();
}

std::unique_ptr<const Model> read_model(const JsonNode& node, bool as_bytes) {
  const std::string type = type_of(node);
  if (type == "BPE") return read_bpe(node, as_bytes);
  if (type == "WordPiece") return read_word_piece(node);
  if (type == "Unigram") return read_unigram(node);
  node.at("type").refuse_value(type);
}

}  // namespace fullshard::text
