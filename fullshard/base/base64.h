// SPDX-License-Identifier: Apache-2.0
// Bytes as letters, digits, + and / (RFC 4648), filled up with = to a multiple of four.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fullshard::base {

std::string encode_base64(std::string_view bytes);

// Nothing when the text is not base64, with its padding.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace fullshard::base
