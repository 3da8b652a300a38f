// SPDX-License-Identifier: Apache-2.0
// Summarises a token file by reading all of it.
#pragma once

#include <cstdint>
#include <vector>

#include "fullshard/data/tokens/token_file.h"

namespace fullshard::data {

struct TokenCount {
  int64_t token = 0;
  int64_t count = 0;
};

struct TokenSummary {
  TokenLayout layout = {};
  int64_t min_token = 0;
  int64_t max_token = 0;
  int64_t num_distinct = 0;
  std::vector<TokenCount> most_frequent = {};  // falling; of equal counts the smaller token first
};

// Also checks what opening the file does not: tokens against `vocabulary` (0: not checked),
// documents in order, the header's largest token. Errors are of the kind `input`.
TokenSummary inspect(const TokenFile& file, int64_t vocabulary, int64_t num_frequent);

}  // namespace fullshard::data
