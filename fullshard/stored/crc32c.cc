#include "fullshard/stored/crc32c.h"

#include <array>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace fullshard {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected
constexpr int kWord = 8;                      // bytes

using Tables = std::array<std::array<uint32_t, 256>, kWord>;

// tables[k][b]: what byte b does to the sum when k bytes follow it.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < kWord; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

uint32_t add_byte(uint32_t crc, unsigned char byte) {
  return (crc >> 8) ^ kTables[0][(crc ^ byte) & 0xff];
}

uint32_t sum_by_tables(const unsigned char* data, int64_t bytes, uint32_t crc) {
  for (; bytes >= kWord; data += kWord, bytes -= kWord) {
    for (size_t i = 0; i < 4; ++i) crc ^= static_cast<uint32_t>(data[i]) << (8 * i);
    uint32_t next = 0;
    for (size_t i = 0; i < 4; ++i) next ^= kTables[7 - i][(crc >> (8 * i)) & 0xff];
    for (size_t i = 4; i < 8; ++i) next ^= kTables[7 - i][data[i]];
    crc = next;
  }
  for (; bytes > 0; ++data, --bytes) crc = add_byte(crc, *data);
  return crc;
}

// Polynomials lie reflected: bit 31 is the coefficient of x^0.
constexpr uint32_t kOne = 0x80000000;

constexpr uint32_t product(uint32_t a, uint32_t b) {
  uint32_t sum = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) sum ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return sum;
}

// What a sum is multiplied by when so many bytes, a power of two, follow.
constexpr uint32_t factor_of(int64_t bytes) {
  uint32_t factor = kOne >> 8;
  for (; bytes > 1; bytes /= 2) factor = product(factor, factor);
  return factor;
}

// The instruction's result takes three cycles and one can begin in each, so that three stretches
// beside each other take no longer than one.
constexpr int64_t kLane = 4096;  // bytes
constexpr uint32_t kAfterOne = factor_of(kLane);
constexpr uint32_t kAfterTwo = factor_of(2 * kLane);

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
    crc = product(static_cast<uint32_t>(first), kAfterTwo) ^
          product(static_cast<uint32_t>(second), kAfterOne) ^ static_cast<uint32_t>(third);
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

}  // namespace fullshard
