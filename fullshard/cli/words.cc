#include "fullshard/cli/words.h"

#include <algorithm>
#include <cstddef>

namespace fullshard {

std::vector<std::string> words_for_parser(std::vector<std::string> words) {
  for (std::string& word : words) {
    if (!word.starts_with("--")) continue;
    const size_t end = std::min(word.find('='), word.size());
    std::replace(word.begin(), word.begin() + static_cast<ptrdiff_t>(end), '_', '-');
  }
  std::reverse(words.begin(), words.end());
  return words;
}

}  // namespace fullshard
