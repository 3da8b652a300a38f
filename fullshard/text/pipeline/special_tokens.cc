// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/pipeline/special_tokens.h"

#include <algorithm>

namespace fullshard::text {
namespace {

// Names in files without a configuration, the most common first.
const std::array<std::vector<std::string_view>, kNumRoles> kCommonNames = {{
    {"<s>", "<|begin_of_text|>", "<|endoftext|>"},
    {"</s>", "<|end_of_text|>", "<|endoftext|>"},
    {"<unk>", "[UNK]"},
    {"<pad>", "[PAD]"},
    {"<mask>", "[MASK]"},
    {"[CLS]"},
    {"[SEP]"},
}};

}  // namespace

SpecialTokens::SpecialTokens(const TokenizerConfig& config, const IdOf& id_of) {
  const bool is_configured =
      std::ranges::any_of(config.roles, [](const auto& name) { return name.has_value(); });
  for (size_t i = 0; i < kNumRoles; ++i) {
    std::vector<std::string_view> names;
    if (config.roles[i]) {
      names = {*config.roles[i]};
    } else if (!is_configured) {
      names = kCommonNames[i];
    }
    for (const auto name : names) {
      if (const auto id = id_of(name)) {
        set(static_cast<Role>(i), *id);
        break;
      }
    }
  }
  for (const auto& name : config.additional) {
    if (const auto id = id_of(name)) mark(*id);
  }
}

void SpecialTokens::set(Role role, int32_t id) {
  ids_[static_cast<size_t>(role)] = id;
  special_.insert(id);
}

}  // namespace fullshard::text
