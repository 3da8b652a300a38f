#include "fullshard/base/stream.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace fullshard {

#if defined(__x86_64__)

void stream(void* to, const void* from, size_t bytes) {
  auto* target = static_cast<char*>(to);
  const auto* source = static_cast<const char*>(from);
  constexpr size_t kVector = sizeof(__m128i);
  const size_t misaligned = reinterpret_cast<uintptr_t>(target) % kVector;
  const size_t head = std::min(bytes, misaligned == 0 ? 0 : kVector - misaligned);
  std::memcpy(target, source, head);
  size_t i = head;
  for (; i + 4 * kVector <= bytes; i += 4 * kVector) {
    __m128i line[4];
    std::memcpy(line, source + i, sizeof line);
    for (size_t part = 0; part < 4; ++part) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(target + i) + part, line[part]);
    }
  }
  std::memcpy(target + i, source + i, bytes - i);
}

void stream_fence() { _mm_sfence(); }

#else

void stream(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

void stream_fence() {}

#endif

void copy_large(void* to, const void* from, size_t bytes) {
  if (bytes < kStreamBytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  stream(to, from, bytes);
  stream_fence();
}

}  // namespace fullshard
