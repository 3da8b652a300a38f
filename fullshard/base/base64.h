// Bytes as letters, digits, + and /.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fullshard {

// Nothing when the text is not base64, with its padding.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace fullshard
