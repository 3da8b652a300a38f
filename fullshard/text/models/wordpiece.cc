// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/models/wordpiece.h"

#include "fullshard/base/error.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {

WordPiece::WordPiece(Vocabulary vocabulary, WordPieceOptions options)
    : Model(std::move(vocabulary)), options_(std::move(options)) {
  unknown_ = this->vocabulary().find(options_.unknown);
  if (unknown_ == Vocabulary::kNone) {
    fail_as(ErrorKind::input, "model.unk_token: \"{}\" is not in the vocabulary", options_.unknown);
  }
  this->vocabulary().each([&](std::string_view token, int32_t id) { tokens_.insert(token, id); });
  continuing_ = tokens_.walk(options_.continuing_prefix);
}

void WordPiece::tokenize(std::string_view word, Workspace&, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  bool found =
      word.size() <= options_.longest_word || count_characters(word) <= options_.longest_word;
  uint32_t from = ByteTrie::kRoot;
  for (size_t begin = 0; found && begin < word.size();) {
    const auto match =
        from == ByteTrie::kNowhere ? ByteTrie::Match() : tokens_.longest(word.substr(begin), from);
    found = match.length > 0;
    if (found) ids.push_back(match.value);
    begin += match.length;
    from = continuing_;
  }
  if (found) return;
  ids.resize(before);
  ids.push_back(unknown_);
}

}  // namespace fullshard::text
