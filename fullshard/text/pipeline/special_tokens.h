// SPDX-License-Identifier: Apache-2.0
// Which tokens begin, end, pad and mask, according to the files next to a vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/text/pipeline/added_tokens.h"

namespace fullshard::text {

enum class Role { bos, eos, unk, pad, mask, cls, sep };
inline constexpr size_t kNumRoles = 7;

// What a folder's tokenizer_config.json, special_tokens_map.json and added_tokens.json say. Missing
// values stay absent.
struct TokenizerConfig {
  struct Numbered {
    AddedToken token;
    int32_t id = 0;
  };

  std::array<std::optional<std::string>, kNumRoles> roles;
  std::vector<std::string> additional;  // additional_ and extra_special_tokens
  std::vector<Numbered> added;          // added_tokens_decoder, added_tokens.json
  std::string tokenizer_class;          // "T5Tokenizer", without "Fast"; "": not given
  std::optional<bool> add_prefix_space, add_bos, add_eos;
  std::optional<bool> do_lower_case, strip_accents, tokenize_chinese;
  std::optional<int64_t> extra_ids;
  bool cuts_left = false;  // truncation_side

  const std::optional<std::string>& role(Role which) const {
    return roles[static_cast<size_t>(which)];
  }
};

// Ids of the roles, and the ids that are special because of them.
class SpecialTokens {
 public:
  using IdOf = std::function<std::optional<int32_t>(std::string_view)>;

  SpecialTokens() = default;
  // Finds roles by name; if the configuration names none, by the names that families commonly use.
  SpecialTokens(const TokenizerConfig& config, const IdOf& id_of);

  std::optional<int32_t> id(Role role) const { return ids_[static_cast<size_t>(role)]; }
  void set(Role role, int32_t id);
  void mark(int32_t id) { special_.insert(id); }
  bool contains(int32_t id) const { return special_.contains(id); }

 private:
  std::array<std::optional<int32_t>, kNumRoles> ids_;
  std::set<int32_t> special_;
};

}  // namespace fullshard::text
