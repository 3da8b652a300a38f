// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/documents/token_border.h"

#include <algorithm>

namespace fullshard::data {

size_t num_common(const std::vector<int32_t>& left, const std::vector<int32_t>& right) {
  const auto differing = std::ranges::mismatch(left, right);
  return static_cast<size_t>(differing.in1 - left.begin());
}

size_t token_at(Border border, const std::vector<int32_t>& before,
                const std::vector<int32_t>& whole, const Tokenizer& tokenizer) {
  const size_t common = num_common(before, whole);
  if (common == before.size()) return common;
  // Around the place the whole text has other tokens: compare by bytes.
  const auto bytes_of_first = [&](const std::vector<int32_t>& ids, size_t count) {
    const std::vector<int32_t> first(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
    return tokenizer.decode(first, /*skip_special=*/false).size();
  };
  const size_t place = bytes_of_first(before, before.size());
  size_t token = common;
  if (border == Border::begin) {
    while (token < whole.size() && bytes_of_first(whole, token + 1) <= place) ++token;
  } else {
    while (token < whole.size() && bytes_of_first(whole, token) < place) ++token;
  }
  return token;
}

}  // namespace fullshard::data
