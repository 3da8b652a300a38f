// SPDX-License-Identifier: Apache-2.0
// What a reader regards as one character: a letter with its accents.
#pragma once

#include <cstddef>
#include <string_view>

namespace fullshard::text {

// Bytes of Unicode's extended grapheme cluster at the beginning of `text`, valid and not empty.
// Flags and Indic conjuncts, of six bytes and more, count as several.
size_t cluster_length(std::string_view text);

}  // namespace fullshard::text
