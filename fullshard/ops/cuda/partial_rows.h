// SPDX-License-Identifier: Apache-2.0
// How much room kernels want for what their blocks leave, before another kernel adds it up. By the
// shape alone, because bits depend on it; plans ask too.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fullshard/ops/cuda/kernel_dtype.h"

namespace fullshard::ops {

inline constexpr int kWarp = 32;

// Elements of one access of 16 bytes.
inline constexpr int64_t pack_of(KernelDtype dtype) { return dtype == KernelDtype::fp32 ? 4 : 8; }

inline constexpr int64_t blocks_for(int64_t count, int64_t per_block) {
  return (count + per_block - 1) / per_block;
}

// Rows of partial sums of column_sums().
inline int64_t num_partial_rows(int64_t num_rows, int64_t width, KernelDtype dtype) {
  // Eight blocks on each of 132 multiprocessors.
  constexpr int64_t kBlocks = 1056, kRowsPerBlock = 32;
  const int64_t across = std::max<int64_t>(blocks_for(width, kWarp * pack_of(dtype)), 1);
  const int64_t most = std::max<int64_t>(kBlocks / across, 1);
  return std::clamp<int64_t>(blocks_for(num_rows, kRowsPerBlock), 1, most);
}

// Which kernel takes the gradients of a norm's rows. Narrow rows are a warp's each, wide ones a
// block's; odd or very wide ones are read element by element.
enum class NormGradientForm { narrow, wide, widest, any };

inline constexpr int kNarrowNormThreads = 256, kNarrowNormRows = kNarrowNormThreads / kWarp;

inline constexpr NormGradientForm norm_gradient_form(KernelDtype dtype, int64_t width) {
  const int64_t pack = pack_of(dtype), num_packs = width / pack;
  if (width % pack != 0 || num_packs > 1024 * 2) return NormGradientForm::any;
  if (num_packs <= kWarp * 4) return NormGradientForm::narrow;
  return num_packs <= 256 * 4 ? NormGradientForm::wide : NormGradientForm::widest;
}

// Blocks of norm_gradient_rows(), each of which leaves a row of partial sums of the gradients of
// weight and bias.
inline int64_t num_norm_partials(KernelDtype dtype, int64_t num_rows, int64_t width) {
  constexpr int64_t kNarrowBlocks = 264, kWideBlocks = 528, kPlainBlocks = 264;
  switch (norm_gradient_form(dtype, width)) {
    case NormGradientForm::narrow:
      return std::clamp<int64_t>(blocks_for(num_rows, kNarrowNormRows), 1, kNarrowBlocks);
    case NormGradientForm::any:
      return std::clamp<int64_t>(num_rows, 1, kPlainBlocks);
    default:
      return std::clamp<int64_t>(num_rows, 1, kWideBlocks);
  }
}

// Chunks of add_segments(), each of which leaves two rows.
inline constexpr int64_t kSegmentChunk = 32;
inline constexpr int64_t num_segment_chunks(int64_t num_rows) {
  return blocks_for(num_rows, kSegmentChunk);
}

}  // namespace fullshard::ops
