// SPDX-License-Identifier: Apache-2.0
// Loops over elements, one cache line at a time, with the lines to come asked for ahead: the
// hardware's own prefetching lags behind when a loop reads four streams (bench/cpu_adamw).
#pragma once

#include <cstdint>

namespace fullshard::base {

constexpr int64_t kLineElements = 16;  // of fp32; fp64 takes two lines
constexpr int64_t kElementsAhead = 256;

template <class... Arrays>
[[gnu::always_inline]] inline void ask_for(int64_t element, const Arrays*... arrays) {
  (__builtin_prefetch(arrays + element + kElementsAhead), ...);
}

// The same for an array of 16-bit elements.
[[gnu::always_inline]] inline void ask_for_narrow(int64_t element, const void* array) {
  __builtin_prefetch(static_cast<const uint16_t*>(array) + element + kElementsAhead);
}

}  // namespace fullshard::base
