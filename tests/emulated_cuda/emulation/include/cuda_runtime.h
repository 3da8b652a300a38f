// SPDX-License-Identifier: Apache-2.0
// In the place of CUDA's header: what kernels use of the language, run by emulation/block.h.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static  // one block runs at a time

inline const auto& blockIdx = ::fullshard::emulation::block_index;
inline const auto& threadIdx = ::fullshard::emulation::thread_index;
inline const auto& gridDim = ::fullshard::emulation::grid_size;
inline const auto& blockDim = ::fullshard::emulation::block_size;

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
inline double2 make_double2(double x, double y) { return {x, y}; }

inline void __syncthreads() { ::fullshard::emulation::wait_for_block(); }

// Every lane is active by itself: they may always have come apart.
inline unsigned __activemask() { return 1u << ::fullshard::emulation::lane(); }

namespace fullshard::emulation {

template <class T>
T from_lane(unsigned mask, const T& own, unsigned lane) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, exchange(mask, &own, sizeof(T)) + lane * sizeof(T), sizeof(T));
  return value;
}

inline Size size_of(const dim3& size) { return {size.x, size.y, size.z}; }

// What stands for kernel<<<grid, threads, shared_bytes, stream>>>: as_host_code.py writes it. The
// parameters of a kernel are copies, as on a device.
template <class... Parameters>
auto launch(void (*kernel)(Parameters...), dim3 grid, dim3 threads, size_t shared_bytes,
            cudaStream_t stream) {
  return [=](std::type_identity_t<Parameters>... arguments) {
    const auto values = std::tuple<std::decay_t<Parameters>...>(arguments...);
    give_to_stream(stream, [=] {
      run_grid(size_of(grid), size_of(threads), shared_bytes, [&] {
        auto own = values;
        std::apply([&](auto&... each) { kernel(static_cast<Parameters>(each)...); }, own);
      });
    });
  };
}

}  // namespace fullshard::emulation

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  ::fullshard::emulation::launch(kernel, config->gridDim, config->blockDim,
                                 config->dynamicSmemBytes,
                                 config->stream)(std::forward<Arguments>(arguments)...);
  return cudaSuccess;
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, unsigned flipped) {
  return ::fullshard::emulation::from_lane(mask, value, ::fullshard::emulation::lane() ^ flipped);
}

// A lane without such a neighbour keeps what it has.
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance) {
  const unsigned own = ::fullshard::emulation::lane();
  const unsigned from = own + distance < ::fullshard::emulation::kLanes ? own + distance : own;
  return ::fullshard::emulation::from_lane(mask, value, from);
}

inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  const auto* all = ::fullshard::emulation::exchange(mask, &value, sizeof(value));
  unsigned largest = 0;
  for (unsigned lane = 0; lane < ::fullshard::emulation::kLanes; ++lane) {
    unsigned other;
    std::memcpy(&other, all + lane * sizeof(other), sizeof(other));
    if ((mask >> lane & 1) != 0 && other > largest) largest = other;
  }
  return largest;
}

// Of both halves of a word.
inline unsigned __vmaxu2(unsigned one, unsigned other) {
  const unsigned low = (one & 0xffffu) > (other & 0xffffu) ? one : other;
  const unsigned high = one >> 16 > other >> 16 ? one : other;
  return (high & 0xffff0000u) | (low & 0xffffu);
}

inline unsigned atomicMax(unsigned* place, unsigned value) {
  const unsigned before = *place;
  if (value > before) *place = value;
  return before;
}

template <class T>
T __ldcs(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, const T& value) {
  *to = value;
}

inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }

// Byte i of the result is the byte that nibble i of the selector names: 0 to 3 of the first word, 4
// to 7 of the second.
inline unsigned __byte_perm(unsigned first, unsigned second, unsigned selector) {
  const uint64_t both = uint64_t{second} << 32 | first;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    result |= static_cast<unsigned>(both >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  }
  return result;
}

inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double __fma_rn(double x, double y, double z) { return std::fma(x, y, z); }
using std::isfinite;
using std::isnan;

template <class T>
constexpr T min(T one, T other) {
  return other < one ? other : one;
}
template <class T>
constexpr T max(T one, T other) {
  return one < other ? other : one;
}

// What kernels write as instructions: as_host_code.py names a function after each.
inline void ex2_approx_ftz_f32(float& result, float x) { result = std::exp2(x); }
inline void rcp_approx_ftz_f32(float& result, float x) { result = 1.0f / x; }
