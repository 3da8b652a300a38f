// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/models/byte_level.h"

#include <array>

#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

constexpr int kCharacters = 0x144;

constexpr std::array<uint16_t, 256> kCharacterOf = [] {
  std::array<uint16_t, 256> table{};
  uint16_t next = 256;
  for (uint16_t byte = 0; byte < 256; ++byte) {
    const bool stands = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    table[byte] = stands ? byte : next++;
  }
  return table;
}();

constexpr std::array<int16_t, kCharacters> kByteOf = [] {
  std::array<int16_t, kCharacters> table{};
  table.fill(-1);
  for (int16_t byte = 0; byte < 256; ++byte) table[kCharacterOf[static_cast<size_t>(byte)]] = byte;
  return table;
}();

}  // namespace

uint32_t byte_level_character(uint8_t byte) { return kCharacterOf[byte]; }

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(text, kCharacterOf[static_cast<unsigned char>(byte)]);
  return text;
}

std::optional<std::string> from_byte_level(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const uint32_t character = next_character(text, i);
    if (character >= kCharacters || kByteOf[character] < 0) return std::nullopt;
    bytes += static_cast<char>(kByteOf[character]);
  }
  return bytes;
}

}  // namespace fullshard::text
