// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/files/read_tokenizer_config.h"

#include <algorithm>
#include <charconv>

#include "fullshard/base/error.h"
#include "fullshard/text/files/json_node.h"

namespace fullshard::text {
namespace {

constexpr std::array<std::string_view, kNumRoles> kKeys = {
    "bos_token", "eos_token", "unk_token", "pad_token", "mask_token", "cls_token", "sep_token"};

// A token is its text, or an object with the text under "content".
std::string content_of(const JsonNode& node) {
  return node.value().is_object() ? node.at("content").text() : node.text();
}

AddedToken added_token(const JsonNode& node) {
  AddedToken token;
  token.content = content_of(node);
  token.single_word = node.flag_or("single_word", false);
  token.lstrip = node.flag_or("lstrip", false);
  token.rstrip = node.flag_or("rstrip", false);
  token.special = node.flag_or("special", false);
  token.normalized = node.flag_or("normalized", !token.special);
  return token;
}

void read_roles(const JsonNode& root, TokenizerConfig& config) {
  for (size_t i = 0; i < kNumRoles; ++i) {
    const auto node = root.get(kKeys[i]);
    if (node && !config.roles[i]) config.roles[i] = content_of(*node);
  }
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto list = root.get(key);
    if (!list) continue;
    for (const auto& token : list->value()) {
      config.additional.push_back(content_of({token, list->path()}));
    }
  }
}

void read_added_tokens(const JsonNode& root, TokenizerConfig& config) {
  const auto decoder = root.get("added_tokens_decoder");
  if (!decoder) return;
  for (const auto& [key, value] : decoder->value().items()) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0) {
      decoder->refuse(fmt::format("\"{}\" is not the id of a token", key));
    }
    config.added.push_back({added_token({value, fmt::format("{}.{}", decoder->path(), key)}), id});
  }
}

void read_main(const JsonNode& root, TokenizerConfig& config) {
  config.tokenizer_class = root.text_or("tokenizer_class", "");
  if (config.tokenizer_class.ends_with("Fast")) {
    config.tokenizer_class.resize(config.tokenizer_class.size() - 4);
  }
  const auto flag = [&](std::string_view key) -> std::optional<bool> {
    const auto node = root.get(key);
    return node ? std::optional(node->flag()) : std::nullopt;
  };
  config.add_prefix_space = flag("add_prefix_space");
  config.add_bos = flag("add_bos_token");
  config.add_eos = flag("add_eos_token");
  config.do_lower_case = flag("do_lower_case");
  config.strip_accents = flag("strip_accents");
  config.tokenize_chinese = flag("tokenize_chinese_chars");
  if (const auto node = root.get("extra_ids")) config.extra_ids = node->number();
  if (const auto node = root.get("truncation_side")) {
    const std::string side = node->text();
    if (side != "left" && side != "right") node->refuse_value(side);
    config.cuts_left = side == "left";
  }
}

// Calls read(root) if the folder has the file; errors name it.
template <class Read>
void read_if_present(const std::string& path, const Read& read) {
  if (!is_file(path)) return;
  const auto json = read_json_file(path);
  try {
    read(JsonNode(json, ""));
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", path, error.what()), error.kind());
  }
}

}  // namespace

TokenizerConfig read_tokenizer_config(const std::string& folder) {
  TokenizerConfig config;
  read_if_present(folder + "tokenizer_config.json", [&](const JsonNode& root) {
    read_main(root, config);
    read_roles(root, config);
    read_added_tokens(root, config);
  });
  read_if_present(folder + "special_tokens_map.json",
                  [&](const JsonNode& root) { read_roles(root, config); });
  read_if_present(folder + "added_tokens.json", [&](const JsonNode& root) {
    for (const auto& [key, value] : root.value().items()) {
      AddedToken token;
      token.content = key;
      config.added.push_back({token, JsonNode(value, key).id()});
    }
  });
  std::ranges::stable_sort(config.added, {}, &TokenizerConfig::Numbered::id);
  return config;
}

}  // namespace fullshard::text
