// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tuning/random_tokens.h"

#include <algorithm>
#include <random>
#include <vector>

#include "fullshard/data/tokens/token_writer.h"

namespace fullshard::tuning {

void write_random_tokens(const std::string& path, int64_t num_tokens, int64_t vocabulary) {
  constexpr int64_t kAtOnce = 1 << 16;
  data::TokenWriter writer(data::AtomicFile(path), data::TokenFormat::fullshard,
                           data::token_width_for(vocabulary));
  std::minstd_rand draw(1);
  std::vector<int32_t> tokens;
  writer.begin_document();
  for (int64_t left = num_tokens; left > 0; left -= kAtOnce) {
    tokens.resize(static_cast<size_t>(std::min(left, kAtOnce)));
    for (int32_t& token : tokens) {
      token = static_cast<int32_t>(static_cast<int64_t>(draw()) % vocabulary);
    }
    writer.append(tokens);
  }
  writer.finish();
}

}  // namespace fullshard::tuning
