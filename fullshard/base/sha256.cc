// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/sha256.h"

#include <bit>
#include <cstddef>
#include <string>

namespace fullshard::base {
namespace {

constexpr size_t kBlock = 64;

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using State = std::array<uint32_t, 8>;

uint32_t mix(uint32_t word, int first, int second, int third) {
  return std::rotr(word, first) ^ std::rotr(word, second) ^ std::rotr(word, third);
}

std::array<uint32_t, 64> schedule(const uint8_t* block) {
  std::array<uint32_t, 64> words{};
  for (size_t place = 0; place < 16; ++place) {
    const uint8_t* bytes = block + 4 * place;
    words[place] = static_cast<uint32_t>(bytes[0]) << 24 | static_cast<uint32_t>(bytes[1]) << 16 |
                   static_cast<uint32_t>(bytes[2]) << 8 | bytes[3];
  }
  for (size_t place = 16; place < 64; ++place) {
    const uint32_t before = words[place - 15], last = words[place - 2];
    words[place] = words[place - 16] + words[place - 7] +
                   (std::rotr(before, 7) ^ std::rotr(before, 18) ^ before >> 3) +
                   (std::rotr(last, 17) ^ std::rotr(last, 19) ^ last >> 10);
  }
  return words;
}

void add_block(State& state, const uint8_t* block) {
  const auto words = schedule(block);
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t round = 0; round < 64; ++round) {
    const uint32_t first =
        h + mix(e, 6, 11, 25) + ((e & f) ^ (~e & g)) + kRound[round] + words[round];
    const uint32_t second = mix(a, 2, 13, 22) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const State added = {a, b, c, d, e, f, g, h};
  for (size_t place = 0; place < state.size(); ++place) state[place] += added[place];
}

// A one bit, zeros, and the length in bits: up to a whole block.
std::string padded(std::string_view text) {
  std::string whole(text);
  whole += '\x80';
  while (whole.size() % kBlock != kBlock - 8) whole += '\0';
  const uint64_t bits = uint64_t{text.size()} * 8;
  for (int shift = 56; shift >= 0; shift -= 8) whole += static_cast<char>(bits >> shift & 0xff);
  return whole;
}

std::string_view as_text(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

Digest sha256(std::string_view text) {
  State state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const std::string whole = padded(text);
  for (size_t begin = 0; begin < whole.size(); begin += kBlock) {
    add_block(state, reinterpret_cast<const uint8_t*>(whole.data()) + begin);
  }
  Digest digest{};
  for (size_t place = 0; place < digest.size(); ++place) {
    digest[place] = static_cast<uint8_t>(state[place / 4] >> (24 - 8 * (place % 4)));
  }
  return digest;
}

Digest hmac_sha256(std::string_view key, std::string_view text) {
  const Digest short_key = sha256(key);
  if (key.size() > kBlock) key = as_text(short_key);
  std::string inner(kBlock, '\x36'), outer(kBlock, '\x5c');
  for (size_t place = 0; place < key.size(); ++place) {
    inner[place] = static_cast<char>(inner[place] ^ key[place]);
    outer[place] = static_cast<char>(outer[place] ^ key[place]);
  }
  const Digest inside = sha256(inner.append(text));
  return sha256(outer.append(as_text(inside)));
}

bool are_equal(const Digest& left, const Digest& right) {
  unsigned difference = 0;
  for (size_t place = 0; place < left.size(); ++place) {
    difference |= static_cast<unsigned>(left[place] ^ right[place]);
  }
  return difference == 0;
}

}  // namespace fullshard::base
