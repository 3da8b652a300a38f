// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/words.h"

#include <algorithm>
#include <cstddef>

namespace fullshard::cli {

std::vector<std::string> words_for_parser(std::vector<std::string> words) {
  for (size_t i = 0; i < words.size(); ++i) {
    std::string& word = words[i];
    if (!word.starts_with("--")) continue;
    const size_t end = std::min(word.find('='), word.size());
    std::replace(word.begin(), word.begin() + static_cast<ptrdiff_t>(end), '_', '-');
    const bool has_value = i + 1 < words.size() && !words[i + 1].starts_with("--");
    if (word == "--fsdp" && !has_value) word += "=true";
  }
  std::reverse(words.begin(), words.end());
  return words;
}

std::vector<std::string> with_command_first(std::vector<std::string> words) {
  if (words.empty()) return words;
  std::string name = words.front().substr(0, words.front().find('='));
  std::replace(name.begin(), name.end(), '_', '-');
  if (name != "--local-rank") return words;
  const size_t count = words.front().size() > name.size() ? 1 : 2;
  const auto command = words.begin() + static_cast<ptrdiff_t>(std::min(count, words.size()));
  std::rotate(words.begin(), command, words.end());
  return words;
}

}  // namespace fullshard::cli
