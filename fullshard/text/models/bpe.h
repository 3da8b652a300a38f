// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding as tokenizer.json and vocab.json + merges.txt describe it.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/text/models/merge_table.h"
#include "fullshard/text/models/model.h"

namespace fullshard::text {

struct BpeOptions {
  std::string unknown;  // token for characters that are not in the vocabulary; "": they are dropped
  bool fuse_unknown = false;       // consecutive unknown characters are one token
  bool byte_fallback = false;      // first try <0x..> for their bytes
  bool ignore_merges = false;      // a word of the vocabulary is one token, whatever the merges are
  std::string continuing_prefix;   // before every character of a word but the first
  std::string end_of_word_suffix;  // after the last

  // The words are bytes; the vocabulary and the merges have them in GPT-2's alphabet.
  bool byte_level = false;
};

class Bpe : public Model {
 public:
  using Pair = std::pair<std::string, std::string>;

  // `merges`: the first ones are applied first. Throws Error of the kind input when a merge names a
  // token that is not in the vocabulary.
  Bpe(Vocabulary vocabulary, const std::vector<Pair>& merges, BpeOptions options);

  void tokenize(std::string_view word, Workspace& workspace,
                std::vector<int32_t>& ids) const override;
  bool may_cut_at_spaces() const override { return may_cut_at_spaces_; }

 private:
  void insert_merges(const std::vector<Pair>& merges);
  void index_characters();
  void split_bytes(std::string_view word, std::vector<int32_t>& symbols) const;
  void split_characters(std::string_view word, Workspace& workspace) const;
  int32_t symbol_of(std::string_view word, size_t begin, size_t end, Workspace& workspace) const;
  bool append_bytes(std::string_view text, std::vector<int32_t>& symbols) const;

  BpeOptions options_;
  MergeTable merges_;
  int32_t unknown_ = Vocabulary::kNone;
  bool plain_ = true;                      // neither prefix nor suffix
  std::array<int32_t, 256> byte_symbols_;  // the token of a byte, by the alphabet or <0x..>
  FlatTable<int32_t> character_symbols_;
  std::unique_ptr<Vocabulary> words_;  // as bytes, for ignore_merges
  bool may_cut_at_spaces_ = false;
};

}  // namespace fullshard::text
