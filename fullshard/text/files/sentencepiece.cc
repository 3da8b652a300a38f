// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/files/sentencepiece.h"

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/text/unicode/space_mark.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

class SentencePieceDecoder : public Decoder {
 public:
  explicit SentencePieceDecoder(const SentencePieceFile& file)
      : unknown_(file.pieces[static_cast<size_t>(file.unknown)].text),
        surface_(file.unknown_surface),
        byte_fallback_(file.byte_fallback),
        strips_(file.add_dummy_prefix || file.remove_extra_spaces),
        strips_all_(file.remove_extra_spaces) {}

  void rewrite(std::vector<std::string>& tokens, const GrowthLimit&) const override {
    std::string text, bytes;
    bool at_begin = true, stripped = false;
    for (const auto& token : tokens) {
      const auto byte = byte_fallback_ ? byte_of_token(token) : std::nullopt;
      if (byte) {
        bytes += static_cast<char>(*byte);
        continue;
      }
      append_bytes(bytes, text);
      at_begin = at_begin && !stripped && text.empty();
      stripped = append_piece(token, at_begin, text);
    }
    append_bytes(bytes, text);
    tokens = {text};
  }

 private:
  // Replaces each byte that is part of no character by U+FFFD.
  static void append_bytes(std::string& bytes, std::string& text) {
    for (size_t i = 0; i < bytes.size();) {
      const size_t length = valid_prefix(std::string_view(bytes).substr(i));
      if (length == 0) {
        append_utf8(text, kReplacementCharacter);
      } else {
        text.append(bytes, i, length);
      }
      i += std::max<size_t>(length, 1);
    }
    bytes.clear();
  }

  // Returns whether it removed the one space that belongs to the beginning.
  bool append_piece(std::string_view piece, bool at_begin, std::string& text) const {
    if (piece == unknown_) {
      text += surface_;
      return false;
    }
    bool stripped = at_begin && strips_ && piece.starts_with(kSpaceMark);
    if (stripped) piece.remove_prefix(kSpaceMark.size());
    for (size_t begin = 0; begin < piece.size();) {
      const size_t mark = std::min(piece.find(kSpaceMark, begin), piece.size());
      text.append(piece, begin, mark - begin);
      if (mark < piece.size()) text += ' ';
      begin = mark + kSpaceMark.size();
    }
    return stripped && !strips_all_;
  }

  std::string unknown_, surface_;
  bool byte_fallback_, strips_, strips_all_;
};

bool is_t5(const SentencePieceFile& file, const TokenizerConfig& config) {
  if (!config.tokenizer_class.empty()) return config.tokenizer_class == "T5Tokenizer";
  return file.algorithm == SentencePieceFile::Algorithm::unigram && file.bos < 0 && file.eos >= 0;
}

void add_sentinels(int64_t count, PipelineParts& parts) {
  constexpr int64_t kMost = 10000;
  if (count < 0 || count > kMost) {
    fail_as(ErrorKind::input, "tokenizer_config.json: extra_ids: {}, expected 0 to {}", count,
            kMost);
  }
  for (int64_t i = count - 1; i >= 0; --i) {
    AddedToken token;
    token.content = fmt::format("<extra_id_{}>", i);
    token.special = true;
    token.normalized = false;
    parts.added.add(token, parts.model->vocabulary(), parts.normalizer.get());
  }
}

void set_roles(const SentencePieceFile& file, const TokenizerConfig& config, PipelineParts& parts) {
  parts.special = special_tokens_of(parts, config);
  const auto set = [&](Role role, int32_t id) {
    if (id >= 0 && !config.role(role)) parts.special.set(role, id);
  };
  set(Role::bos, file.bos);
  set(Role::eos, file.eos);
  set(Role::pad, file.pad);
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    if (file.pieces[id].kind != SentencePieceFile::Kind::control) continue;
    parts.special.mark(static_cast<int32_t>(id));
    parts.hidden.insert(static_cast<int32_t>(id));
  }
}

}  // namespace

DecoderPointer sentencepiece_decoder(const SentencePieceFile& file) {
  return std::make_unique<SentencePieceDecoder>(file);
}

PipelineParts sentencepiece_parts(const SentencePieceFile& file, const TokenizerConfig& config) {
  const bool is_bpe = file.algorithm == SentencePieceFile::Algorithm::bpe;
  const bool t5 = is_t5(file, config);
  PipelineParts parts;
  parts.normalizer = sentencepiece_normalizer(file);
  parts.model = is_bpe ? sentencepiece_bpe(file) : sentencepiece_unigram(file);
  parts.cache_words = parts.model->may_cut_at_spaces();
  parts.decoder = sentencepiece_decoder(file);
  for (const auto& added : config.added) {
    parts.added.add_with_id(added.token, added.id, parts.normalizer.get());
  }
  if (parts.added.id_of("<extra_id_0>") == Vocabulary::kNone) {
    add_sentinels(config.extra_ids.value_or(t5 ? 100 : 0), parts);
  }
  set_roles(file, config, parts);
  std::vector<int32_t> stage;
  const auto bos = parts.special.id(Role::bos), eos = parts.special.id(Role::eos);
  if (bos && config.add_bos.value_or(!t5)) stage.push_back(*bos);
  stage.push_back(PostProcessor::kText);
  if (eos && config.add_eos.value_or(t5)) stage.push_back(*eos);
  parts.post_processor.add_stage(stage);
  return parts;
}

}  // namespace fullshard::text
