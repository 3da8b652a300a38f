#include "fullshard/formats/crc32.h"

#include <array>
#include <cstring>

namespace fullshard {
namespace {

// Eight bytes at a time: table t answers for a byte that t others follow.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320U : 0);
    tables[0][byte] = value;
  }
  for (size_t t = 1; t < tables.size(); ++t) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t value = tables[t - 1][byte];
      tables[t][byte] = (value >> 8) ^ tables[0][value & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

uint32_t crc32(uint32_t before, const void* data, int64_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  uint32_t value = ~before;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint32_t low = 0;
    uint32_t high = 0;
    std::memcpy(&low, at, sizeof low);
    std::memcpy(&high, at + sizeof low, sizeof high);
    low ^= value;
    value = kTables[7][low & 0xFF] ^ kTables[6][(low >> 8) & 0xFF] ^
            kTables[5][(low >> 16) & 0xFF] ^ kTables[4][low >> 24] ^ kTables[3][high & 0xFF] ^
            kTables[2][(high >> 8) & 0xFF] ^ kTables[1][(high >> 16) & 0xFF] ^
            kTables[0][high >> 24];
  }
  for (; bytes > 0; --bytes, ++at) value = (value >> 8) ^ kTables[0][(value ^ *at) & 0xFF];
  return ~value;
}

}  // namespace fullshard
