// SPDX-License-Identifier: Apache-2.0
// What stands for a space in the vocabularies of SentencePiece and of its heirs: U+2581.
#pragma once

#include <string_view>

namespace fullshard::text {

inline constexpr std::string_view kSpaceMark = "\u2581";

}  // namespace fullshard::text
