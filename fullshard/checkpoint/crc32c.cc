#include "fullshard/checkpoint/crc32c.h"

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

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) uint32_t sum_by_instruction(const unsigned char* data,
                                                              int64_t bytes, uint32_t crc) {
  uint64_t wide = crc;
  for (; bytes >= kWord; data += kWord, bytes -= kWord) {
    uint64_t word = 0;
    std::memcpy(&word, data, kWord);
    wide = _mm_crc32_u64(wide, word);
  }
  return sum_by_tables(data, bytes, static_cast<uint32_t>(wide));
}

bool has_instruction() { return __builtin_cpu_supports("sse4.2"); }

#elif defined(__aarch64__)

__attribute__((target("+crc"))) uint32_t sum_by_instruction(const unsigned char* data,
                                                            int64_t bytes, uint32_t crc) {
  for (; bytes >= kWord; data += kWord, bytes -= kWord) {
    uint64_t word = 0;
    std::memcpy(&word, data, kWord);
    crc = __crc32cd(crc, word);
  }
  return sum_by_tables(data, bytes, crc);
}

bool has_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }

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
