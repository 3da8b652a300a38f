// SPDX-License-Identifier: Apache-2.0
// GPT-2's alphabet: each byte is one printable character.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fullshard::text {

// 33 … 126, 161 … 172 and 174 … 255 stand for themselves, the others are U+0100 … U+0143.
uint32_t byte_level_character(uint8_t byte);

std::string to_byte_level(std::string_view bytes);
// Absent if a character is not in the alphabet.
std::optional<std::string> from_byte_level(std::string_view text);

}  // namespace fullshard::text
