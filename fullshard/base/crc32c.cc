// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/crc32c.h"

#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "fullshard/base/crc_arithmetic.h"

namespace fullshard::base {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected
constexpr int kWord = 8;                      // bytes

uint32_t sum_by_tables(const unsigned char* data, int64_t bytes, uint32_t crc) {
  return gf2::sum_by_tables<kPolynomial>(crc, data, bytes);
}

// The instruction's result takes three cycles and one can begin in each, so that three stretches
// beside each other take no longer than one.
constexpr int64_t kLane = 4096;  // bytes
constexpr uint32_t kAfterOne = gf2::factor_of<kPolynomial>(kLane);
constexpr uint32_t kAfterTwo = gf2::factor_of<kPolynomial>(2 * kLane);

uint64_t word_at(const unsigned char* data) {
  uint64_t word = 0;
  std::memcpy(&word, data, kWord);
  return word;
}

#if defined(__x86_64__)
#define FULLSHARD_CRC_TARGET __attribute__((target("sse4.2")))

FULLSHARD_CRC_TARGET inline uint64_t add_word(uint64_t crc, const unsigned char* data) {
  return _mm_crc32_u64(crc, word_at(data));
}

bool has_instruction() { return __builtin_cpu_supports("sse4.2"); }

#elif defined(__aarch64__)
#define FULLSHARD_CRC_TARGET __attribute__((target("+crc")))

FULLSHARD_CRC_TARGET inline uint64_t add_word(uint64_t crc, const unsigned char* data) {
  return __crc32cd(static_cast<uint32_t>(crc), word_at(data));
}

bool has_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }

#endif

#if defined(FULLSHARD_CRC_TARGET)

FULLSHARD_CRC_TARGET uint32_t sum_by_instruction(const unsigned char* data, int64_t bytes,
                                                 uint32_t crc) {
  for (; bytes >= 3 * kLane; data += 3 * kLane, bytes -= 3 * kLane) {
    uint64_t first = crc, second = 0, third = 0;
    for (int64_t at = 0; at < kLane; at += kWord) {
      first = add_word(first, data + at);
      second = add_word(second, data + at + kLane);
      third = add_word(third, data + at + 2 * kLane);
    }
    crc = gf2::product<kPolynomial>(static_cast<uint32_t>(first), kAfterTwo) ^
          gf2::product<kPolynomial>(static_cast<uint32_t>(second), kAfterOne) ^
          static_cast<uint32_t>(third);
  }
  uint64_t wide = crc;
  for (; bytes >= kWord; data += kWord, bytes -= kWord) wide = add_word(wide, data);
  return sum_by_tables(data, bytes, static_cast<uint32_t>(wide));
}

#else

uint32_t sum_by_instruction(const unsigned char* data, int64_t bytes, uint32_t crc) {
  return sum_by_tables(data, bytes, crc);
}

bool has_instruction() { return false; }

#endif

}  // namespace

uint32_t crc32c_by_tables(const void* data, int64_t bytes, uint32_t crc) {
  return ~sum_by_tables(static_cast<const unsigned char*>(data), bytes, ~crc);
}

uint32_t crc32c(const void* data, int64_t bytes, uint32_t crc) {
  static const bool has = has_instruction();
  if (!has) return crc32c_by_tables(data, bytes, crc);
  return ~sum_by_instruction(static_cast<const unsigned char*>(data), bytes, ~crc);
}

}  // namespace fullshard::base
