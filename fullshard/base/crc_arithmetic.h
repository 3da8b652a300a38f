// SPDX-License-Identifier: Apache-2.0
// What checksums by cyclic redundancy of 32 bits share, whatever their polynomial: sums by tables,
// and products of polynomials over GF(2). These lie reflected: bit 31 is the coefficient of x^0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fullshard::base::gf2 {

inline constexpr uint32_t kOne = 0x80000000U;

template <uint32_t kPolynomial>
constexpr uint32_t times_x(uint32_t value) {
  return (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
}

template <uint32_t kPolynomial>
constexpr uint32_t product(uint32_t a, uint32_t b) {
  uint32_t sum = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1, b = times_x<kPolynomial>(b)) {
    if ((a & bit) != 0) sum ^= b;
  }
  return sum;
}

// What a sum is multiplied by when so many bytes follow: x to the number of their bits.
template <uint32_t kPolynomial>
constexpr uint32_t factor_of(int64_t bytes) {
  uint32_t factor = kOne;
  uint32_t square = kOne >> 8;  // x^8
  for (; bytes > 0; bytes >>= 1) {
    if ((bytes & 1) != 0) factor = product<kPolynomial>(factor, square);
    square = product<kPolynomial>(square, square);
  }
  return factor;
}

// Eight bytes at a time: table t answers for a byte that t others follow.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

template <uint32_t kPolynomial>
constexpr Tables make_tables() {
  Tables tables = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = times_x<kPolynomial>(value);
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

template <uint32_t kPolynomial>
inline constexpr Tables kTables = make_tables<kPolynomial>();

// Goes on from `value`, the sum of what came before; nothing is inverted.
template <uint32_t kPolynomial>
uint32_t sum_by_tables(uint32_t value, const unsigned char* at, int64_t bytes) {
  constexpr const Tables& tables = kTables<kPolynomial>;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint32_t low = 0;
    uint32_t high = 0;
    std::memcpy(&low, at, sizeof low);
    std::memcpy(&high, at + sizeof low, sizeof high);
    low ^= value;
    value = tables[7][low & 0xFF] ^ tables[6][(low >> 8) & 0xFF] ^ tables[5][(low >> 16) & 0xFF] ^
            tables[4][low >> 24] ^ tables[3][high & 0xFF] ^ tables[2][(high >> 8) & 0xFF] ^
            tables[1][(high >> 16) & 0xFF] ^ tables[0][high >> 24];
  }
  for (; bytes > 0; --bytes, ++at) value = (value >> 8) ^ tables[0][(value ^ *at) & 0xFF];
  return value;
}

}  // namespace fullshard::base::gf2
