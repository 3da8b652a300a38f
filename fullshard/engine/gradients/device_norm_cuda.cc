// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/gradients/device_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstring>
#include <limits>

#include "fullshard/base/error.h"
#include "fullshard/tensor/operator_watch.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::engine {
namespace {

NormDtype norm_dtype(const at::Tensor& values) {
  switch (values.scalar_type()) {
    case at::kFloat:
      return NormDtype::fp32;
    case at::kBFloat16:
      return NormDtype::bf16;
    case at::kHalf:
      return NormDtype::fp16;
    case at::kDouble:
      return NormDtype::fp64;
    default:
      fail("gradients are in {}, expected float32, float64, bfloat16 or float16",
           c10::toString(values.scalar_type()));
  }
}

NormPiece entry_of(const GradientPiece& piece, int64_t first_block) {
  NormPiece entry;
  entry.values = piece.values.const_data_ptr();
  entry.numel = piece.values.numel();
  entry.result = piece.tensor;
  entry.first_block = static_cast<int32_t>(first_block);
  entry.num_blocks = static_cast<int32_t>((entry.numel + kNormChunk - 1) / kNormChunk);
  entry.dtype = norm_dtype(piece.values);
  return entry;
}

struct NormTable {
  std::vector<NormPiece> pieces;
  int64_t num_blocks = 0;
};

NormTable table_of(const std::vector<GradientPiece>& gradients) {
  NormTable table;
  table.pieces.reserve(gradients.size());
  for (const auto& gradient : gradients) {
    if (gradient.values.numel() == 0) continue;
    table.pieces.push_back(entry_of(gradient, table.num_blocks));
    table.num_blocks += table.pieces.back().num_blocks;
  }
  check(table.num_blocks <= std::numeric_limits<int32_t>::max(),
        "the gradient norm has {} blocks of {} elements, expected fewer than 2^31; use more ranks",
        table.num_blocks, kNormChunk);
  return table;
}

// Pinned memory comes from torch's cache, which does not reuse it before the copy is done, and
// device memory from that of the current stream.
at::Tensor uploaded(const std::vector<NormPiece>& pieces, at::Device device) {
  const size_t bytes = pieces.size() * sizeof(NormPiece);
  auto staging = at::empty({static_cast<int64_t>(bytes)},
                           at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  std::memcpy(staging.mutable_data_ptr(), pieces.data(), bytes);
  return staging.to(device, at::kByte, /*non_blocking=*/true);
}

// One launch for all of them.
void note_norms(const std::vector<GradientPiece>& pieces) {
  int64_t bytes = 0;
  for (const auto& piece : pieces) bytes += tensor::touched_bytes(piece.values);
  tensor::note_kernel("gradient_norm", bytes);
}

}  // namespace

at::Tensor norms_on_device(NormKind kind, const std::vector<GradientPiece>& pieces,
                           int64_t num_tensors, at::Device device) {
  const auto numbers = at::TensorOptions().device(device).dtype(at::kDouble);
  auto results = at::zeros({num_tensors}, numbers);
  if (tensor::is_pretended()) {
    note_norms(pieces);
    return results;
  }
  const c10::cuda::CUDAGuard guard(device);
  const auto table = table_of(pieces);
  if (table.pieces.empty()) return results;
  const auto on_device = uploaded(table.pieces, device);
  auto partials = at::empty({table.num_blocks}, numbers);
  launch_norms(kind, static_cast<const NormPiece*>(on_device.const_data_ptr()),
               static_cast<int>(table.pieces.size()), static_cast<int>(table.num_blocks),
               partials.mutable_data_ptr<double>(), results.mutable_data_ptr<double>(),
               c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return results;
}

at::Tensor clip_factor_on_device(NormKind kind, const at::Tensor& numbers,
                                 const ClipSettings& settings) {
  auto outcome = at::empty({2}, numbers.options());
  if (tensor::is_pretended()) return outcome;
  const c10::cuda::CUDAGuard guard(numbers.device());
  launch_clip_factor(kind, numbers.const_data_ptr<double>(), numbers.numel(), settings,
                     outcome.mutable_data_ptr<double>(), c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return outcome;
}

}  // namespace fullshard::engine
