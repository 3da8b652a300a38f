// SPDX-License-Identifier: Apache-2.0
// Tokens in addition to the model's vocabulary, found in the text before anything else.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/text/models/byte_trie.h"
#include "fullshard/text/models/vocabulary.h"
#include "fullshard/text/pipeline/normalizer.h"

namespace fullshard::text {

struct AddedToken {
  std::string content;
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // and after it
  bool normalized = true;    // found in normalized text, otherwise in the original
  bool special = false;
};

// Filled while loading, then only read.
class AddedTokens {
 public:
  // The id is the model's id of this text, or the next free one. `normalizer` may be null.
  void add(const AddedToken& token, const Vocabulary& vocabulary, const Normalizer* normalizer);
  // Uses an id that is known; the first token of an id stays.
  void add_with_id(const AddedToken& token, int32_t id, const Normalizer* normalizer);

  struct Found {
    size_t begin = 0;
    size_t end = 0;
    int32_t id = Vocabulary::kNone;  // kNone: text between tokens
  };

  // Tokens and the text between them, in order; the leftmost first, among these the longest.
  void find(std::string_view text, bool normalized, std::vector<Found>& found) const;

  int32_t id_of(std::string_view content) const;  // kNone if absent
  std::optional<std::string_view> token_of(int32_t id) const;
  // As a decoder sees it: the normalized text if the token is found in normalized text.
  std::optional<std::string_view> decoded_token_of(int32_t id) const;
  bool is_special(std::string_view content) const { return special_.contains(content); }
  bool is_special_id(int32_t id) const;
  int32_t size() const;  // one more than the largest id; 0 when there are none

 private:
  struct Entry {
    AddedToken token;
    std::string searched;
  };

  std::optional<Found> next_match(std::string_view text, size_t from, const ByteTrie& trie) const;

  std::map<int32_t, Entry> by_id_;
  std::map<std::string, int32_t, std::less<>> ids_;
  std::set<std::string, std::less<>> special_;
  ByteTrie original_, normalized_;
};

}  // namespace fullshard::text
