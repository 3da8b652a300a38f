// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/line_prefix.h"

namespace fullshard::launch {

std::string LinePrefix::take(std::string_view piece) {
  std::string lines;
  partial_ += piece;
  size_t begin = 0;
  for (size_t end; (end = partial_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines += prefix_;
    lines.append(partial_, begin, end + 1 - begin);
  }
  partial_.erase(0, begin);
  return lines;
}

std::string LinePrefix::rest() {
  if (partial_.empty()) return {};
  return prefix_ + std::exchange(partial_, {}) + '\n';
}

}  // namespace fullshard::launch
