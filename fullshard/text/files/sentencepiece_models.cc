// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "fullshard/base/error.h"
#include "fullshard/text/files/sentencepiece.h"
#include "fullshard/text/models/byte_trie.h"
#include "fullshard/text/models/merge_table.h"
#include "fullshard/text/models/unigram.h"
#include "fullshard/text/unicode/space_mark.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

using Kind = SentencePieceFile::Kind;

Vocabulary vocabulary_of(const SentencePieceFile& file) {
  Vocabulary vocabulary;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    vocabulary.insert(file.pieces[id].text, static_cast<int32_t>(id));
  }
  return vocabulary;
}

// Merges pieces by their scores: neighbours become one when together they are a piece.
class SentencePieceBpe : public Model {
 public:
  explicit SentencePieceBpe(const SentencePieceFile& file)
      : Model(vocabulary_of(file)),
        unknown_(file.unknown),
        byte_fallback_(file.byte_fallback),
        num_pieces_(static_cast<int32_t>(file.pieces.size())) {
    index_pieces(file);
    index_merges(file);
    may_cut_ = !merges_.crosses_spaces() && !kept_has_space_ && symbols_.contains(kSpaceMark);
  }

  void tokenize(std::string_view word, Workspace& workspace,
                std::vector<int32_t>& ids) const override {
    workspace.ids.clear();
    for (size_t i = 0; i < word.size();) i += append_symbol(word.substr(i), workspace.ids);
    merges_.apply(workspace);
    bool after_unknown = false;  // consecutive unknown pieces are one
    for (const int32_t id : workspace.ids) {
      if (id >= num_pieces_ && byte_fallback_) {
        append_bytes(extra_[static_cast<size_t>(id - num_pieces_)], ids);
        continue;
      }
      const bool is_unknown = id >= num_pieces_ || id == unknown_;
      if (!(is_unknown && after_unknown)) ids.push_back(is_unknown ? unknown_ : id);
      after_unknown = is_unknown;
    }
  }

  bool may_cut_at_spaces() const override { return may_cut_; }

 private:
  void index_pieces(const SentencePieceFile& file) {
    bytes_.fill(Vocabulary::kNone);
    for (int32_t id = 0; id < num_pieces_; ++id) {
      const auto& piece = file.pieces[static_cast<size_t>(id)];
      if (piece.kind == Kind::unused) {
        fail_as(ErrorKind::input, "piece {}: \"{}\" has the type UNUSED, not supported in BPE", id,
                piece.text);
      }
      if (piece.kind == Kind::byte) bytes_[*byte_of_token(piece.text)] = id;
      if (piece.kind == Kind::normal) symbols_.emplace(piece.text, id);
      if (piece.kind == Kind::user_defined) {
        kept_.insert(piece.text, id);
        kept_has_space_ |= piece.text.find(kSpaceMark) != std::string::npos;
      }
    }
    // A character that is not a piece may still be part of one: such characters get ids of their
    // own.
    for (const auto& piece : file.pieces) {
      if (piece.kind != Kind::normal) continue;
      for (size_t i = 0; i < piece.text.size();) {
        const std::string character = piece.text.substr(i, utf8_length(piece.text[i]));
        i += character.size();
        const auto id = num_pieces_ + static_cast<int32_t>(extra_.size());
        if (symbols_.emplace(character, id).second) extra_.push_back(character);
      }
    }
    for (const auto& [text, id] : symbols_) {
      if (utf8_length(text[0]) != text.size()) continue;
      size_t end = 0;
      characters_.insert(next_character(text, end), id);
    }
  }

  void index_merges(const SentencePieceFile& file) {
    std::map<float, uint32_t, std::greater<>> ranks;
    for (const auto& piece : file.pieces) {
      if (piece.kind == Kind::normal) ranks.emplace(piece.score, 0);
    }
    uint32_t rank = 0;
    for (auto& entry : ranks) entry.second = rank++;
    for (int32_t id = 0; id < num_pieces_; ++id) {
      const auto& piece = file.pieces[static_cast<size_t>(id)];
      if (piece.kind != Kind::normal) continue;
      const std::string_view text = piece.text;
      for (size_t cut = utf8_length(text[0]); cut < text.size(); cut += utf8_length(text[cut])) {
        const auto left = symbols_.find(text.substr(0, cut));
        const auto right = symbols_.find(text.substr(cut));
        if (left == symbols_.end() || right == symbols_.end()) continue;
        merges_.insert(left->second, left->first, right->second, right->first,
                       {ranks[piece.score], id});
      }
    }
  }

  size_t append_symbol(std::string_view text, std::vector<int32_t>& symbols) const {
    if (!kept_.empty() && kept_.begins(text[0])) {
      const auto match = kept_.longest(text);
      if (match.length > 0) {
        symbols.push_back(match.value);
        return match.length;
      }
    }
    size_t end = 0;
    const int32_t* found = characters_.find(next_character(text, end));
    if (found != nullptr) {
      symbols.push_back(*found);
    } else if (byte_fallback_) {
      append_bytes(text.substr(0, end), symbols);
    } else {
      symbols.push_back(unknown_);
    }
    return end;
  }

  void append_bytes(std::string_view text, std::vector<int32_t>& ids) const {
    for (const char byte : text) ids.push_back(bytes_[static_cast<unsigned char>(byte)]);
  }

  int32_t unknown_;
  bool byte_fallback_;
  int32_t num_pieces_;
  std::map<std::string, int32_t, std::less<>> symbols_;  // normal pieces and extra characters
  std::vector<std::string> extra_;                       // for the ids from num_pieces_ on
  FlatTable<int32_t> characters_;
  std::array<int32_t, 256> bytes_;
  ByteTrie kept_;  // user-defined pieces: found first, never merged
  bool kept_has_space_ = false;
  MergeTable merges_;
  bool may_cut_ = false;
};

}  // namespace

std::unique_ptr<const Model> sentencepiece_bpe(const SentencePieceFile& file) {
  return std::make_unique<SentencePieceBpe>(file);
}

std::unique_ptr<const Model> sentencepiece_unigram(const SentencePieceFile& file) {
  constexpr float kUnknownPenalty = 10;
  float smallest = std::numeric_limits<float>::max();
  float largest = std::numeric_limits<float>::min();  // as in the library: the least positive
  for (const auto& piece : file.pieces) {
    if (piece.kind != Kind::normal) continue;
    smallest = std::min(smallest, piece.score);
    largest = std::max(largest, piece.score);
  }
  std::vector<std::optional<double>> scores;
  for (const auto& piece : file.pieces) {
    scores.emplace_back();
    if (piece.kind == Kind::normal) scores.back() = piece.score;
    // high enough that it always wins
    if (piece.kind == Kind::user_defined) {
      scores.back() = static_cast<float>(piece.text.size()) * largest - 0.1;
    }
  }
  UnigramOptions options;
  options.unknown = file.unknown;
  options.unknown_score = smallest - kUnknownPenalty;
  options.byte_fallback = file.byte_fallback;
  options.as_sentencepiece = true;
  return std::make_unique<Unigram>(vocabulary_of(file), std::move(scores), options);
}

}  // namespace fullshard::text
