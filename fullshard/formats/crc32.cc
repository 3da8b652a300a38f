#include "fullshard/formats/crc32.h"

#include <array>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace fullshard {
namespace {

// Polynomials over GF(2) lie reflected: bit 31 is the coefficient of x^0.
constexpr uint32_t kPolynomial = 0xEDB88320U;
constexpr uint32_t kOne = 0x80000000U;

constexpr uint32_t times_x(uint32_t value) {
  return (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
}

// Eight bytes at a time: table t answers for a byte that t others follow.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = times_x(value);
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

uint32_t sum_by_tables(uint32_t value, const unsigned char* at, int64_t bytes) {
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
  return value;
}

uint32_t product(uint32_t a, uint32_t b) {
  uint32_t sum = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1, b = times_x(b)) {
    if ((a & bit) != 0) sum ^= b;
  }
  return sum;
}

#if defined(__x86_64__)

// x^power, as the instruction wants it: a product of reflected numbers is shifted by one.
constexpr int64_t factor(int power) {
  uint32_t value = kOne;
  for (int i = 0; i < power; ++i) value = times_x(value);
  return static_cast<int64_t>(value) << 1;
}

// Moves 16 bytes ahead: by which factors says how far.
__attribute__((target("pclmul,sse4.1"))) inline __m128i fold(__m128i value, __m128i factors) {
  return _mm_xor_si128(_mm_clmulepi64_si128(value, factors, 0x00),
                       _mm_clmulepi64_si128(value, factors, 0x11));
}

// What precedes is added to what follows 64 or 16 bytes later; the last 16 bytes have the checksum
// of all.
__attribute__((target("pclmul,sse4.1"))) uint32_t sum_by_instruction(uint32_t value,
                                                                     const unsigned char* at,
                                                                     int64_t bytes) {
  constexpr int64_t kStep = 64;
  if (bytes < 2 * kStep) return sum_by_tables(value, at, bytes);
  const __m128i far = _mm_set_epi64x(factor(512 - 32), factor(512 + 32));
  const __m128i near = _mm_set_epi64x(factor(128 - 32), factor(128 + 32));
  const auto load = [&at](int64_t offset) __attribute__((target("pclmul,sse4.1"))) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + offset));
  };
  __m128i a = _mm_xor_si128(load(0), _mm_cvtsi32_si128(static_cast<int>(value)));
  __m128i b = load(16);
  __m128i c = load(32);
  __m128i d = load(48);
  at += kStep;
  bytes -= kStep;
  for (; bytes >= kStep; bytes -= kStep, at += kStep) {
    a = _mm_xor_si128(fold(a, far), load(0));
    b = _mm_xor_si128(fold(b, far), load(16));
    c = _mm_xor_si128(fold(c, far), load(32));
    d = _mm_xor_si128(fold(d, far), load(48));
  }
  b = _mm_xor_si128(fold(a, near), b);
  c = _mm_xor_si128(fold(b, near), c);
  d = _mm_xor_si128(fold(c, near), d);
  unsigned char last[16];
  std::memcpy(last, &d, sizeof last);
  return sum_by_tables(sum_by_tables(0, last, sizeof last), at, bytes);
}

bool has_instruction() {
  return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

#elif defined(__aarch64__)

__attribute__((target("+crc"))) uint32_t sum_by_instruction(uint32_t value, const unsigned char* at,
                                                            int64_t bytes) {
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    value = __crc32d(value, word);
  }
  return sum_by_tables(value, at, bytes);
}

bool has_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }

#else

uint32_t sum_by_instruction(uint32_t value, const unsigned char* at, int64_t bytes) {
  return sum_by_tables(value, at, bytes);
}

bool has_instruction() { return false; }

#endif

}  // namespace

uint32_t crc32_by_tables(uint32_t before, const void* data, int64_t bytes) {
  return ~sum_by_tables(~before, static_cast<const unsigned char*>(data), bytes);
}

uint32_t crc32(uint32_t before, const void* data, int64_t bytes) {
  static const bool has = has_instruction();
  if (!has) return crc32_by_tables(before, data, bytes);
  return ~sum_by_instruction(~before, static_cast<const unsigned char*>(data), bytes);
}

// The first stretch counts as many powers of x more as the second has bits.
uint32_t crc32_of_both(uint32_t first, uint32_t second, int64_t second_bytes) {
  uint32_t power = kOne;
  uint32_t square = kOne >> 8;  // x^8
  for (int64_t left = second_bytes; left > 0; left >>= 1) {
    if ((left & 1) != 0) power = product(power, square);
    square = product(square, square);
  }
  return product(first, power) ^ second;
}

}  // namespace fullshard
