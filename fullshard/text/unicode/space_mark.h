// SPDX-License-Identifier: Apache-2.0
// The replacement of a space in the vocabularies of SentencePiece and its successors: U+2581.
#pragma once

#include <string_view>

namespace fullshard::text {

inline constexpr std::string_view kSpaceMark = "\u2581";

}  // namespace fullshard::text
