// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/models/bpe.h"

#include "fullshard/base/error.h"
#include "fullshard/text/models/byte_level.h"
#include "fullshard/text/unicode/space_mark.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {}  // namespace

Bpe::Bpe(Vocabulary vocabulary, const std::vector<Pair>& merges, BpeOptions options)
    : Model(std::move(vocabulary)), options_(std::move(options)) {
  plain_ = options_.continuing_prefix.empty() && options_.end_of_word_suffix.empty();
  if (!options_.unknown.empty()) {
    unknown_ = this->vocabulary().find(options_.unknown);
    if (unknown_ == Vocabulary::kNone) {
      fail_as(ErrorKind::input, "model.unk_token: \"{}\" is not in the vocabulary",
              options_.unknown);
    }
  }
  insert_merges(merges);
  index_characters();
  may_cut_at_spaces_ = plain_ && !options_.byte_level && !options_.ignore_merges &&
                       !merges_.crosses_spaces() &&
                       this->vocabulary().find(kSpaceMark) != Vocabulary::kNone;
}

void Bpe::insert_merges(const std::vector<Pair>& merges) {
  const auto id_of = [&](std::string_view token, size_t rank) {
    const int32_t id = vocabulary().find(token);
    if (id == Vocabulary::kNone) {
      fail_as(ErrorKind::input,
              "model.merges: merge {} needs \"{}\", which is not in the vocabulary", rank, token);
    }
    return id;
  };
  std::string merged;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const int32_t left_id = id_of(left, rank), right_id = id_of(right, rank);
    if (right.size() < options_.continuing_prefix.size()) {
      fail_as(ErrorKind::input, "model.merges: merge {}: \"{}\" does not begin with \"{}\"", rank,
              right, options_.continuing_prefix);
    }
    merged = left;
    merged.append(right, options_.continuing_prefix.size(), std::string::npos);
    merges_.insert(left_id, left, right_id, right,
                   {static_cast<uint32_t>(rank), id_of(merged, rank)});
  }
}

void Bpe::index_characters() {
  for (int byte = 0; byte < 256; ++byte) {
    std::string token = byte_token(static_cast<uint8_t>(byte));
    if (options_.byte_level) {
      token.clear();
      append_utf8(token, byte_level_character(static_cast<uint8_t>(byte)));
    }
    byte_symbols_[static_cast<size_t>(byte)] = vocabulary().find(token);
  }
  if (options_.byte_level && options_.ignore_merges) words_ = std::make_unique<Vocabulary>();
  vocabulary().each([&](std::string_view token, int32_t id) {
    if (!token.empty() && utf8_length(token[0]) == token.size()) {
      size_t end = 0;
      character_symbols_.insert(next_character(token, end), id);
    }
    if (words_ != nullptr) {
      if (const auto bytes = from_byte_level(token)) words_->insert(*bytes, id);
    }
  });
}

void Bpe::tokenize(std::string_view word, Workspace& workspace, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges) {
    const int32_t id = (words_ != nullptr ? *words_ : vocabulary()).find(word);
    if (id != Vocabulary::kNone) {
      ids.push_back(id);
      return;
    }
  }
  workspace.ids.clear();
  if (options_.byte_level) {
    split_bytes(word, workspace.ids);
  } else {
    split_characters(word, workspace);
  }
  merges_.apply(workspace);
  ids.insert(ids.end(), workspace.ids.begin(), workspace.ids.end());
}

void Bpe::split_bytes(std::string_view word, std::vector<int32_t>& symbols) const {
  bool after_unknown = false;
  for (const char byte : word) {
    const int32_t id = byte_symbols_[static_cast<unsigned char>(byte)];
    if (id != Vocabulary::kNone) {
      symbols.push_back(id);
    } else if (unknown_ != Vocabulary::kNone && !(after_unknown && options_.fuse_unknown)) {
      symbols.push_back(unknown_);
    }
    after_unknown = id == Vocabulary::kNone;
  }
}

void Bpe::split_characters(std::string_view word, Workspace& workspace) const {
  auto& symbols = workspace.ids;
  bool pending = false;  // an unknown token that is written before the next known one
  const auto flush = [&] {
    if (pending) symbols.push_back(unknown_);
    pending = false;
  };
  for (size_t begin = 0; begin < word.size();) {
    const size_t end = begin + utf8_length(word[begin]);
    const int32_t id = symbol_of(word, begin, end, workspace);
    if (id != Vocabulary::kNone) {
      flush();
      symbols.push_back(id);
    } else if (options_.byte_fallback &&
               append_bytes(plain_ ? word.substr(begin, end - begin) : workspace.letters,
                            symbols)) {
      // As in the original, the bytes come before an unknown token that is still pending.
    } else if (unknown_ != Vocabulary::kNone) {
      if (!options_.fuse_unknown) flush();
      pending = true;
    }
    begin = end;
  }
  flush();
}

int32_t Bpe::symbol_of(std::string_view word, size_t begin, size_t end,
                       Workspace& workspace) const {
  if (plain_) {
    const int32_t* found = character_symbols_.find(next_character(word, begin));
    return found == nullptr ? Vocabulary::kNone : *found;
  }
  std::string& text = workspace.letters;
  text.clear();
  if (begin > 0) text += options_.continuing_prefix;
  text += word.substr(begin, end - begin);
  if (end == word.size()) text += options_.end_of_word_suffix;
  return vocabulary().find(text);
}

bool Bpe::append_bytes(std::string_view text, std::vector<int32_t>& symbols) const {
  for (const char byte : text) {
    if (byte_symbols_[static_cast<unsigned char>(byte)] == Vocabulary::kNone) return false;
  }
  for (const char byte : text) symbols.push_back(byte_symbols_[static_cast<unsigned char>(byte)]);
  return true;
}

}  // namespace fullshard::text
