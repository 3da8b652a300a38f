// SPDX-License-Identifier: Apache-2.0
// Which tokens begin, end, pad and mask: what the files beside a vocabulary say.
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

// Of a folder: tokenizer_config.json, special_tokens_map.json, added_tokens.json. What is not there
// stays absent.
struct TokenizerConfig {
  struct Numbered {
    AddedToken token;
    int32_t id = 0;
  };

  std::array<std::optional<std::string>, kNumRoles> roles;
  std::vector<std::string> additional;  // additional_ and extra_special_tokens
  std::vector<Numbered> added;          // added_tokens_decoder, added_tokens.json
  std::string tokenizer_class;          // "T5Tokenizer", without "Fast"; "" when not said
  std::optional<bool> add_prefix_space, add_bos, add_eos;
  std::optional<bool> do_lower_case, strip_accents, tokenize_chinese;
  std::optional<int64_t> extra_ids;
  bool cuts_left = false;  // truncation_side

  const std::optional<std::string>& role(Role which) const {
    return roles[static_cast<size_t>(which)];
  }
};

// Ids of the roles, and the ids that are special by them.
class SpecialTokens {
 public:
  using IdOf = std::function<std::optional<int32_t>(std::string_view)>;

  SpecialTokens() = default;
  // Roles by name. Where the configuration names none, by the names that families commonly use.
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
