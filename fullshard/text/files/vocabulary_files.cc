// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/files/vocabulary_files.h"

#include "fullshard/base/error.h"
#include "fullshard/base/text_file.h"
#include "fullshard/text/files/json_node.h"
#include "fullshard/text/models/bpe.h"
#include "fullshard/text/models/wordpiece.h"

namespace fullshard::text {
namespace {

// Lines without their line breaks, "\n" or "\r\n".
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    begin = end + 1;
  }
  return lines;
}

Vocabulary read_vocabulary_file(const std::string& path) {
  const auto json = read_json_file(path);
  if (!json.is_object()) {
    fail_as(ErrorKind::input, "{}: expected an object of tokens and ids", path);
  }
  Vocabulary vocabulary;
  for (const auto& [token, id] : json.items()) {
    vocabulary.insert(token, JsonNode(id, fmt::format("{}: \"{}\"", path, token)).id());
  }
  return vocabulary;
}

std::vector<Bpe::Pair> read_merges(const std::string& path) {
  std::vector<Bpe::Pair> merges;
  size_t number = 0;
  for (const auto& line : lines_of(base::read_text_file(path))) {
    ++number;
    if (line.empty() || line.starts_with("#version")) continue;
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
      fail_as(ErrorKind::input, "{}:{}: \"{}\", expected two tokens with a space between", path,
              number, line);
    }
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return merges;
}

// Adds the configuration's own tokens, then those of its roles, or of the family's if it names
// none.
void add_special(const TokenizerConfig& config,
                 std::initializer_list<std::pair<Role, std::string_view>> family,
                 PipelineParts& parts, TokenizerConfig& completed) {
  completed = config;
  for (const auto& added : config.added) {
    parts.added.add_with_id(added.token, added.id, parts.normalizer.get());
  }
  for (const auto& [role, name] : family) {
    auto& chosen = completed.roles[static_cast<size_t>(role)];
    if (!chosen) chosen = std::string(name);
    if (parts.added.id_of(*chosen) != Vocabulary::kNone) continue;
    AddedToken token;
    token.content = *chosen;
    token.special = true;
    token.normalized = false;
    token.lstrip = *chosen == "<mask>";
    parts.added.add(token, parts.model->vocabulary(), parts.normalizer.get());
  }
  parts.special = special_tokens_of(parts, completed);
}

}  // namespace

PipelineParts byte_level_parts(const std::string& vocab_json, const std::string& merges_txt,
                               const TokenizerConfig& config) {
  const bool roberta = config.tokenizer_class.starts_with("Roberta");
  const bool qwen2 = config.tokenizer_class.starts_with("Qwen2");
  PipelineParts parts;
  ByteLevelOptions bytes;
  bytes.add_prefix_space = config.add_prefix_space.value_or(false);
  bytes.write_alphabet = false;
  if (qwen2) {
    bytes.use_regex = false;
    parts.normalizer = form_normalizer(NormalForm::nfc);
    std::vector<PreTokenizerPointer> steps;
    steps.push_back(split_pre_tokenizer(regex_pattern(std::string(kQwen2Expression)),
                                        SplitBehavior::isolated, false));
    steps.push_back(byte_level_pre_tokenizer(bytes));
    parts.pre_tokenizer = pre_tokenizer_sequence(std::move(steps));
  } else {
    parts.pre_tokenizer = byte_level_pre_tokenizer(bytes);
  }
  BpeOptions options;
  options.byte_level = true;
  auto vocabulary =
      read_vocabulary_file(vocab_json);  // read first: its errors come before those of the merges
  parts.model = std::make_unique<Bpe>(std::move(vocabulary), read_merges(merges_txt), options);
  parts.decoder = byte_level_decoder();
  TokenizerConfig completed;
  if (roberta) {
    add_special(config,
                {{Role::bos, "<s>"},
                 {Role::eos, "</s>"},
                 {Role::unk, "<unk>"},
                 {Role::pad, "<pad>"},
                 {Role::mask, "<mask>"},
                 {Role::cls, "<s>"},
                 {Role::sep, "</s>"}},
                parts, completed);
    parts.post_processor.add_stage(
        {*parts.special.id(Role::cls), PostProcessor::kText, *parts.special.id(Role::sep)});
  } else if (qwen2) {
    add_special(config, {{Role::eos, "<|endoftext|>"}, {Role::pad, "<|endoftext|>"}}, parts,
                completed);
  } else {
    add_special(config, {{Role::bos, "<|endoftext|>"}, {Role::eos, "<|endoftext|>"}}, parts,
                completed);
  }
  return parts;
}

PipelineParts bert_parts(const std::string& vocab_txt, const TokenizerConfig& config) {
  Vocabulary vocabulary;
  int32_t id = 0;
  for (const auto& line : lines_of(base::read_text_file(vocab_txt))) vocabulary.insert(line, id++);
  BertNormalizerOptions normalizer;
  normalizer.lowercase = config.do_lower_case.value_or(true);
  normalizer.chinese = config.tokenize_chinese.value_or(true);
  normalizer.strip_accents = config.strip_accents.value_or(normalizer.lowercase);
  WordPieceOptions options;
  if (config.role(Role::unk)) options.unknown = *config.role(Role::unk);
  PipelineParts parts;
  parts.normalizer = bert_normalizer(normalizer);
  parts.pre_tokenizer = bert_pre_tokenizer();
  parts.model = std::make_unique<WordPiece>(std::move(vocabulary), options);
  parts.decoder = word_piece_decoder("##", true);
  TokenizerConfig completed;
  add_special(config,
              {{Role::unk, "[UNK]"},
               {Role::sep, "[SEP]"},
               {Role::pad, "[PAD]"},
               {Role::cls, "[CLS]"},
               {Role::mask, "[MASK]"}},
              parts, completed);
  parts.post_processor.add_stage(
      {*parts.special.id(Role::cls), PostProcessor::kText, *parts.special.id(Role::sep)});
  return parts;
}

}  // namespace fullshard::text
