// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "fullshard/engine/gradients/device_norm_kernels.h"
#include "fullshard/engine/gradients/gradient_factor.h"

namespace fullshard::engine {
namespace {

constexpr int kThreads = 256;
// Loads of 16 bytes that a thread has under way before it adds any.
constexpr int kInFlight = 8;

struct SumOfSquares {
  // The square of an fp32 value is exact in fp64: fused or not, the bits are the same.
  __device__ static double with(double sum, double value) { return __fma_rn(value, value, sum); }
  __device__ static double joined(double one, double other) { return one + other; }
};

struct Largest {
  __device__ static double with(double most, double value) { return joined(most, fabs(value)); }
  // NaN stays.
  __device__ static double joined(double one, double other) {
    return isnan(other) || other > one ? other : one;
  }
};

__device__ double wide(float value) { return value; }
__device__ double wide(double value) { return value; }
__device__ double wide(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ double wide(__half value) { return __half2float(value); }

// Down the lanes of a warp, then over the warps: always in this order.
template <class Kind>
__device__ double joined_over_block(double own) {
  __shared__ double of_warps[kThreads / 32];
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    own = Kind::joined(own, __shfl_down_sync(0xffffffffu, own, lanes));
  }
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
  __syncthreads();
  double total = 0;
  for (const double warp : of_warps) total = Kind::joined(total, warp);
  return total;
}

// A thread's part of a block's numbers, in four chains of additions.
template <class Kind, class Stored>
struct ThreadSums {
  static constexpr int kPerWord = 16 / sizeof(Stored);

  __device__ void add(Stored value, int chain = 0) {
    chains[chain] = Kind::with(chains[chain], wide(value));
  }
  __device__ void add(uint4 word) {
    struct alignas(16) Elements {
      Stored values[kPerWord];
    };
    const auto elements = __builtin_bit_cast(Elements, word);
#pragma unroll
    for (int k = 0; k < kPerWord; ++k) add(elements.values[k], k % 4);
  }
  __device__ double total() const {
    return Kind::joined(Kind::joined(chains[0], chains[1]), Kind::joined(chains[2], chains[3]));
  }

  double chains[4] = {};
};

// Elements before the first address that is a multiple of 16.
template <class Stored>
__device__ int elements_to_word(const Stored* values) {
  return static_cast<int>((16 - reinterpret_cast<uintptr_t>(values) % 16) % 16 / sizeof(Stored));
}

// Words of 16 bytes, marked as read once for the caches; single elements before and after them.
template <class Kind, class Stored>
__device__ double over_chunk(const NormPiece& piece, int64_t begin) {
  using Sums = ThreadSums<Kind, Stored>;
  const auto* values = static_cast<const Stored*>(piece.values) + begin;
  const int numel = static_cast<int>(min(kNormChunk, piece.numel - begin));
  const int before = min(elements_to_word(values), numel);
  const int num_words = (numel - before) / Sums::kPerWord;
  const auto* words = reinterpret_cast<const uint4*>(values + before);
  const int thread = static_cast<int>(threadIdx.x);
  Sums sums;
  int i = thread;
  for (; i + (kInFlight - 1) * kThreads < num_words; i += kInFlight * kThreads) {
    uint4 raw[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) raw[u] = __ldcs(words + i + u * kThreads);
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) sums.add(raw[u]);
  }
  for (; i < num_words; i += kThreads) sums.add(__ldcs(words + i));
  if (thread < before) sums.add(values[thread]);
  const int after = before + num_words * Sums::kPerWord;
  if (after + thread < numel) sums.add(values[after + thread]);
  return sums.total();
}

// The last piece that starts at or before the block.
__device__ const NormPiece& piece_of_block(const NormPiece* pieces, int num_pieces, int block) {
  int low = 0, high = num_pieces;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (pieces[middle].first_block <= block ? low : high) = middle;
  }
  return pieces[low];
}

template <class Kind>
__device__ double over_chunk(const NormPiece& piece, int64_t begin) {
  switch (piece.dtype) {
    case NormDtype::fp32:
      return over_chunk<Kind, float>(piece, begin);
    case NormDtype::bf16:
      return over_chunk<Kind, __nv_bfloat16>(piece, begin);
    case NormDtype::fp16:
      return over_chunk<Kind, __half>(piece, begin);
    case NormDtype::fp64:
      return over_chunk<Kind, double>(piece, begin);
  }
  return 0;
}

template <class Kind>
__global__ void __launch_bounds__(kThreads)
    partials_kernel(const NormPiece* pieces, int num_pieces, double* partials) {
  const int block = static_cast<int>(blockIdx.x);
  const NormPiece piece = piece_of_block(pieces, num_pieces, block);
  const double own = over_chunk<Kind>(piece, (block - piece.first_block) * kNormChunk);
  const double total = joined_over_block<Kind>(own);
  if (threadIdx.x == 0) partials[block] = total;
}

template <class Kind>
__device__ double joined_numbers(const double* numbers, int64_t numel) {
  double own = 0;
  for (int64_t i = threadIdx.x; i < numel; i += kThreads) own = Kind::joined(own, numbers[i]);
  return joined_over_block<Kind>(own);
}

template <class Kind>
__global__ void __launch_bounds__(kThreads)
    pieces_kernel(const NormPiece* pieces, const double* partials, double* results) {
  const NormPiece& piece = pieces[blockIdx.x];
  const double total = joined_numbers<Kind>(partials + piece.first_block, piece.num_blocks);
  if (threadIdx.x == 0) results[piece.result] = total;
}

template <class Kind>
__global__ void __launch_bounds__(kThreads)
    clip_kernel(const double* numbers, int64_t numel, ClipSettings settings, bool takes_root,
                double* outcome) {
  const double total = joined_numbers<Kind>(numbers, numel);
  if (threadIdx.x != 0) return;
  const double rounded = takes_root ? static_cast<double>(static_cast<float>(sqrt(total))) : total;
  const double norm = rounded / settings.loss_scale;
  const float clip = settings.max_norm > 0 ? clip_coefficient(settings.max_norm, norm) : 1.0f;
  outcome[0] = norm;
  outcome[1] = isfinite(norm) ? step_factor(clip, settings.loss_scale) : nan("");
}

template <class Kind>
void launch_kind(const NormPiece* pieces, int num_pieces, int num_blocks, double* partials,
                 double* results, cudaStream_t stream) {
  partials_kernel<Kind>
      <<<static_cast<unsigned>(num_blocks), kThreads, 0, stream>>>(pieces, num_pieces, partials);
  pieces_kernel<Kind>
      <<<static_cast<unsigned>(num_pieces), kThreads, 0, stream>>>(pieces, partials, results);
}

}  // namespace

void launch_norms(NormKind kind, const NormPiece* pieces, int num_pieces, int num_blocks,
                  double* partials, double* results, tensor::DeviceStream stream) {
  if (num_blocks == 0) return;
  if (kind == NormKind::largest) {
    launch_kind<Largest>(pieces, num_pieces, num_blocks, partials, results, stream);
  } else {
    launch_kind<SumOfSquares>(pieces, num_pieces, num_blocks, partials, results, stream);
  }
}

void launch_clip_factor(NormKind kind, const double* numbers, int64_t numel, ClipSettings settings,
                        double* outcome, tensor::DeviceStream stream) {
  if (kind == NormKind::largest) {
    clip_kernel<Largest><<<1, kThreads, 0, stream>>>(numbers, numel, settings, false, outcome);
  } else {
    clip_kernel<SumOfSquares><<<1, kThreads, 0, stream>>>(numbers, numel, settings, true, outcome);
  }
}

}  // namespace fullshard::engine
