// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/crc32.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "fullshard/base/crc_arithmetic.h"

namespace fullshard::formats {
namespace {

constexpr uint32_t kPolynomial = 0xEDB88320U;  // reflected

uint32_t sum_by_tables(uint32_t value, const unsigned char* at, int64_t bytes) {
  return base::gf2::sum_by_tables<kPolynomial>(value, at, bytes);
}

#if defined(__x86_64__)

// The factor that moves a sum over this many bytes, as the instruction expects it: a product of
// reflected numbers is shifted by one.
constexpr int64_t factor(int64_t bytes) {
  return static_cast<int64_t>(base::gf2::factor_of<kPolynomial>(bytes)) << 1;
}
constexpr int64_t kFarLow = factor(64 + 4), kFarHigh = factor(64 - 4);
constexpr int64_t kNearLow = factor(16 + 4), kNearHigh = factor(16 - 4);

// Moves 16 bytes ahead; `factors` determine how far.
__attribute__((target("pclmul,sse4.1"))) inline __m128i fold(__m128i value, __m128i factors) {
  return _mm_xor_si128(_mm_clmulepi64_si128(value, factors, 0x00),
                       _mm_clmulepi64_si128(value, factors, 0x11));
}

// Each block is added to the one 64 or 16 bytes later; the last 16 bytes then have the checksum of
// all.
__attribute__((target("pclmul,sse4.1"))) uint32_t sum_by_instruction(uint32_t value,
                                                                     const unsigned char* at,
                                                                     int64_t bytes) {
  constexpr int64_t kStep = 64;
  if (bytes < 2 * kStep) return sum_by_tables(value, at, bytes);
  const __m128i far = _mm_set_epi64x(kFarHigh, kFarLow);
  const __m128i near = _mm_set_epi64x(kNearHigh, kNearLow);
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

// The first sum is multiplied by as many powers of x as the second range has bits.
uint32_t crc32_of_both(uint32_t first, uint32_t second, int64_t second_bytes) {
  return base::gf2::product<kPolynomial>(first, base::gf2::factor_of<kPolynomial>(second_bytes)) ^
         second;
}

}  // namespace fullshard::formats
