// SPDX-License-Identifier: Apache-2.0
// Finds the token at a place in a text, for tokenizers that do not report it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard::data {

enum class Border { begin, end };  // of a part of the text

// How many tokens at the beginning of both are equal.
size_t num_common(const std::vector<int32_t>& left, const std::vector<int32_t>& right);

// `whole` are the tokens of a text, `before` those of its beginning up to the place. Returns the
// number of the first token of a part that begins there, or of the first token after a part that
// ends there: a token across the place belongs to the part.
size_t token_at(Border border, const std::vector<int32_t>& before,
                const std::vector<int32_t>& whole, const Tokenizer& tokenizer);

}  // namespace fullshard::data
