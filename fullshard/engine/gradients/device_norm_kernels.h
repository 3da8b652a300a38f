// SPDX-License-Identifier: Apache-2.0
// Norms of many pieces in device memory. Raw pointers and a stream, no torch.
#pragma once

#include <cstdint>

#include "fullshard/tensor/device_stream.h"

namespace fullshard::engine {

enum class NormKind : uint8_t { sum_of_squares, largest };
enum class NormDtype : uint8_t { fp32, bf16, fp16, fp64 };

// Elements that one thread block sums. Fewer leave less to wait for at the end, more spare the
// blocks' own sums.
constexpr int64_t kNormChunk = 16384;

struct NormPiece {
  const void* values = nullptr;
  int64_t numel = 0;
  int64_t result = 0;  // where its number goes
  int32_t first_block = 0;
  int32_t num_blocks = 0;
  NormDtype dtype = NormDtype::fp32;
};

// results[piece.result] = Σ x² or max |x| of the piece, NaN where it holds one. Pieces have
// elements and stand in the order of their blocks, num_blocks in all; `partials` has room for a
// number per block. Both passes add in a fixed order: the same bits in every run.
void launch_norms(NormKind kind, const NormPiece* pieces, int num_pieces, int num_blocks,
                  double* partials, double* results, tensor::DeviceStream stream);

struct ClipSettings {
  float max_norm = 0;  // 0: no clipping
  double loss_scale = 1;
};
// From `numel` numbers of all tensors and shards: outcome[0] is the norm of unscaled gradients,
// rounded as the host does it, outcome[1] what gradients are to be multiplied with, NaN when the
// norm is not finite.
void launch_clip_factor(NormKind kind, const double* numbers, int64_t numel, ClipSettings settings,
                        double* outcome, tensor::DeviceStream stream);

}  // namespace fullshard::engine
