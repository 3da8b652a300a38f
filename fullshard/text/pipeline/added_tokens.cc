// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/pipeline/added_tokens.h"

#include <algorithm>

#include "fullshard/text/unicode/unicode.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

bool is_word_at(std::string_view text, size_t at) {
  return at < text.size() && Characters::get().has(next_character(text, at), kWord);
}

bool is_word_before(std::string_view text, size_t at) {
  return at > 0 && is_word_at(text, previous_begin(text, at));
}

size_t skip_spaces(std::string_view text, size_t at) {
  for (size_t next = at; next < text.size(); at = next) {
    if (!Characters::get().has(next_character(text, next), kSpace)) break;
  }
  return at;
}

size_t skip_spaces_back(std::string_view text, size_t at, size_t limit) {
  while (at > limit) {
    const size_t begin = previous_begin(text, at);
    size_t end = begin;
    if (!Characters::get().has(next_character(text, end), kSpace)) break;
    at = begin;
  }
  return std::max(at, limit);
}

}  // namespace

void AddedTokens::add(const AddedToken& token, const Vocabulary& vocabulary,
                      const Normalizer* normalizer) {
  if (token.content.empty()) return;
  int32_t id = id_of(token.content);
  if (id == Vocabulary::kNone) id = vocabulary.find(token.content);
  if (id == Vocabulary::kNone) {
    const auto count = static_cast<int32_t>(vocabulary.count());
    id = std::max(count, size());
  }
  by_id_.erase(id);
  add_with_id(token, id, normalizer);
}

void AddedTokens::add_with_id(const AddedToken& token, int32_t id, const Normalizer* normalizer) {
  if (token.content.empty() || by_id_.contains(id)) return;
  Entry entry{token, token.content};
  if (token.normalized && normalizer != nullptr) normalizer->apply(entry.searched);
  if (!entry.searched.empty()) {
    (token.normalized ? normalized_ : original_).insert(entry.searched, id);
  }
  if (token.special) special_.insert(token.content);
  ids_[token.content] = id;
  by_id_.emplace(id, std::move(entry));
}

std::optional<AddedTokens::Found> AddedTokens::next_match(std::string_view text, size_t from,
                                                          const ByteTrie& trie) const {
  for (size_t at = from; at < text.size(); ++at) {
    if (!trie.begins(text[at])) continue;
    const auto match = trie.longest(text.substr(at));
    if (match.length > 0) return Found{at, at + match.length, match.value};
  }
  return std::nullopt;
}

void AddedTokens::find(std::string_view text, bool normalized, std::vector<Found>& found) const {
  const ByteTrie& trie = normalized ? normalized_ : original_;
  size_t done = 0;
  if (!trie.empty()) {
    size_t from = 0;
    while (auto match = next_match(text, from, trie)) {
      from = match->end;
      const AddedToken& token = by_id_.at(match->id).token;
      if (token.single_word &&
          (is_word_before(text, match->begin) || is_word_at(text, match->end))) {
        continue;
      }
      if (token.lstrip) match->begin = skip_spaces_back(text, match->begin, done);
      if (token.rstrip) match->end = skip_spaces(text, match->end);
      match->begin = std::max(match->begin, done);
      if (done < match->begin) found.push_back({done, match->begin, Vocabulary::kNone});
      found.push_back(*match);
      done = match->end;
      from = std::max(from, done);
    }
  }
  if (done < text.size()) found.push_back({done, text.size(), Vocabulary::kNone});
}

int32_t AddedTokens::id_of(std::string_view content) const {
  const auto found = ids_.find(content);
  return found == ids_.end() ? Vocabulary::kNone : found->second;
}

std::optional<std::string_view> AddedTokens::token_of(int32_t id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return std::nullopt;
  return found->second.token.content;
}

std::optional<std::string_view> AddedTokens::decoded_token_of(int32_t id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return std::nullopt;
  return found->second.searched;
}

bool AddedTokens::is_special_id(int32_t id) const {
  const auto found = by_id_.find(id);
  return found != by_id_.end() && found->second.token.special;
}

int32_t AddedTokens::size() const { return by_id_.empty() ? 0 : by_id_.rbegin()->first + 1; }

}  // namespace fullshard::text
