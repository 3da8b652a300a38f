#include "fullshard/shard/device_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard {
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
  const auto word = static_cast<uintptr_t>(std::min<int64_t>(4 * piece.values.element_size(), 16));
  entry.is_aligned = reinterpret_cast<uintptr_t>(entry.values) % word == 0;
  return entry;
}

struct NormTable {
  std::vector<NormPiece> pieces;
  std::vector<NormBlock> blocks;
};

NormTable table_of(const std::vector<GradientPiece>& gradients) {
  NormTable table;
  for (const auto& gradient : gradients) {
    if (gradient.values.numel() == 0) continue;
    const auto index = static_cast<int32_t>(table.pieces.size());
    table.pieces.push_back(entry_of(gradient, static_cast<int64_t>(table.blocks.size())));
    for (int32_t chunk = 0; chunk < table.pieces.back().num_blocks; ++chunk) {
      table.blocks.push_back({index, chunk});
    }
  }
  check(table.blocks.size() <= static_cast<size_t>(std::numeric_limits<int32_t>::max()),
        "the gradient norm has {} blocks of {} elements, expected fewer than 2^31; use more ranks",
        table.blocks.size(), kNormChunk);
  return table;
}

// One copy for both lists. Pinned memory comes from torch's cache, which does not reuse it before
// the copy is done, and device memory from that of the current stream.
at::Tensor uploaded(const NormTable& table, at::Device device) {
  const size_t of_pieces = table.pieces.size() * sizeof(NormPiece);
  const size_t of_blocks = table.blocks.size() * sizeof(NormBlock);
  auto staging = at::empty({static_cast<int64_t>(of_pieces + of_blocks)},
                           at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  auto* bytes = staging.mutable_data_ptr<uint8_t>();
  std::memcpy(bytes, table.pieces.data(), of_pieces);
  std::memcpy(bytes + of_pieces, table.blocks.data(), of_blocks);
  return staging.to(device, at::kByte, /*non_blocking=*/true);
}

}  // namespace

at::Tensor norms_on_device(NormKind kind, const std::vector<GradientPiece>& pieces,
                           int64_t num_tensors, at::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  const auto numbers = at::TensorOptions().device(device).dtype(at::kDouble);
  auto results = at::zeros({num_tensors}, numbers);
  const auto table = table_of(pieces);
  if (table.blocks.empty()) return results;
  const auto on_device = uploaded(table, device);
  auto partials = at::empty({static_cast<int64_t>(table.blocks.size())}, numbers);
  const auto* first_piece = static_cast<const NormPiece*>(on_device.const_data_ptr());
  launch_norms(kind, first_piece, static_cast<int>(table.pieces.size()),
               reinterpret_cast<const NormBlock*>(first_piece + table.pieces.size()),
               static_cast<int>(table.blocks.size()), partials.mutable_data_ptr<double>(),
               results.mutable_data_ptr<double>(), c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return results;
}

at::Tensor clip_factor_on_device(NormKind kind, const at::Tensor& numbers,
                                 const ClipSettings& settings) {
  const c10::cuda::CUDAGuard guard(numbers.device());
  auto outcome = at::empty({2}, numbers.options());
  launch_clip_factor(kind, numbers.const_data_ptr<double>(), numbers.numel(), settings,
                     outcome.mutable_data_ptr<double>(), c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return outcome;
}

}  // namespace fullshard
