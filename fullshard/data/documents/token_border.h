// SPDX-License-Identifier: Apache-2.0
// Which token of a text a place in it falls on, for tokenizers that do not tell.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard::data {

enum class Border { begin, end };  // of a part of the text

// How many tokens two rows of them begin with alike.
size_t num_common(const std::vector<int32_t>& left, const std::vector<int32_t>& right);

// `whole` are the tokens of a text, `before` those of its beginning up to the place. The number of
// the first token of a part that begins there, or of the first one after a part that ends there: a
// token across the place belongs to the part.
size_t token_at(Border border, const std::vector<int32_t>& before,
                const std::vector<int32_t>& whole, const Tokenizer& tokenizer);

}  // namespace fullshard::data
