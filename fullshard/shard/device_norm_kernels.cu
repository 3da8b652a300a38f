#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "fullshard/shard/device_norm_kernels.h"

namespace fullshard {
namespace {

constexpr int kThreads = 256;

struct SumOfSquares {
  // The square of an fp32 value is exact in fp64.
  __device__ static double of(double value) { return value * value; }
  __device__ static double joined(double one, double other) { return one + other; }
};

struct Largest {
  __device__ static double of(double value) { return fabs(value); }
  // NaN stays.
  __device__ static double joined(double one, double other) {
    return isnan(other) || other > one ? other : one;
  }
};

template <class Stored>
struct alignas(4 * sizeof(Stored) < 16 ? 4 * sizeof(Stored) : 16) Four {
  Stored values[4];
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

// A thread reads kInFlight groups of four before it adds any.
template <class Kind, class Stored>
__device__ double over_chunk(const NormPiece& piece, int64_t begin) {
  constexpr int kInFlight = 8;
  constexpr int64_t kStride = 4 * kThreads;
  const auto* values = static_cast<const Stored*>(piece.values);
  const int64_t end = min(begin + kNormChunk, piece.numel);
  int64_t rest = begin;
  double sums[4] = {};
  if (piece.is_aligned) {
    rest = begin + (end - begin) / 4 * 4;
    int64_t i = begin + 4 * threadIdx.x;
    for (; i + kStride * (kInFlight - 1) + 4 <= rest; i += kStride * kInFlight) {
      Four<Stored> raw[kInFlight];
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        raw[u] = *reinterpret_cast<const Four<Stored>*>(values + i + u * kStride);
      }
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          sums[k] = Kind::joined(sums[k], Kind::of(wide(raw[u].values[k])));
        }
      }
    }
    for (; i + 4 <= rest; i += kStride) {
      const auto raw = *reinterpret_cast<const Four<Stored>*>(values + i);
#pragma unroll
      for (int k = 0; k < 4; ++k) sums[k] = Kind::joined(sums[k], Kind::of(wide(raw.values[k])));
    }
  }
  for (int64_t i = rest + threadIdx.x; i < end; i += kThreads) {
    sums[0] = Kind::joined(sums[0], Kind::of(wide(values[i])));
  }
  return Kind::joined(Kind::joined(sums[0], sums[1]), Kind::joined(sums[2], sums[3]));
}

template <class Kind>
__global__ void __launch_bounds__(kThreads)
    partials_kernel(const NormPiece* pieces, const NormBlock* blocks, double* partials) {
  const NormBlock block = blocks[blockIdx.x];
  const NormPiece piece = pieces[block.piece];
  const int64_t begin = block.chunk * kNormChunk;
  double own = 0;
  switch (piece.dtype) {
    case NormDtype::fp32:
      own = over_chunk<Kind, float>(piece, begin);
      break;
    case NormDtype::bf16:
      own = over_chunk<Kind, __nv_bfloat16>(piece, begin);
      break;
    case NormDtype::fp16:
      own = over_chunk<Kind, __half>(piece, begin);
      break;
    case NormDtype::fp64:
      own = over_chunk<Kind, double>(piece, begin);
      break;
  }
  const double total = joined_over_block<Kind>(own);
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
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
  float clip = 1;
  if (settings.max_norm > 0) {
    const float coefficient = settings.max_norm / (static_cast<float>(norm) + 1e-6f);
    if (coefficient < clip) clip = coefficient;
  }
  outcome[0] = norm;
  outcome[1] = isfinite(norm) ? static_cast<double>(clip) / settings.loss_scale : nan("");
}

template <class Kind>
void launch_kind(const NormPiece* pieces, int num_pieces, const NormBlock* blocks, int num_blocks,
                 double* partials, double* results, cudaStream_t stream) {
  partials_kernel<Kind>
      <<<static_cast<unsigned>(num_blocks), kThreads, 0, stream>>>(pieces, blocks, partials);
  pieces_kernel<Kind>
      <<<static_cast<unsigned>(num_pieces), kThreads, 0, stream>>>(pieces, partials, results);
}

}  // namespace

void launch_norms(NormKind kind, const NormPiece* pieces, int num_pieces, const NormBlock* blocks,
                  int num_blocks, double* partials, double* results, CUstream_st* stream) {
  if (num_blocks == 0) return;
  if (kind == NormKind::largest) {
    launch_kind<Largest>(pieces, num_pieces, blocks, num_blocks, partials, results, stream);
  } else {
    launch_kind<SumOfSquares>(pieces, num_pieces, blocks, num_blocks, partials, results, stream);
  }
}

void launch_clip_factor(NormKind kind, const double* numbers, int64_t numel, ClipSettings settings,
                        double* outcome, CUstream_st* stream) {
  if (kind == NormKind::largest) {
    clip_kernel<Largest><<<1, kThreads, 0, stream>>>(numbers, numel, settings, false, outcome);
  } else {
    clip_kernel<SumOfSquares><<<1, kThreads, 0, stream>>>(numbers, numel, settings, true, outcome);
  }
}

}  // namespace fullshard
