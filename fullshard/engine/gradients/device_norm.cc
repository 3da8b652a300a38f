// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/gradients/device_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <limits>

#include "fullshard/base/error.h"
#include "fullshard/tensor/kernel_launch.h"

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

NormPiece entry_of(const tensor::KernelLaunch& launch, const GradientPiece& piece,
                   int64_t first_block) {
  NormPiece entry;
  entry.values = launch.read(piece.values);
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

NormTable table_of(const tensor::KernelLaunch& launch,
                   const std::vector<GradientPiece>& gradients) {
  NormTable table;
  table.pieces.reserve(gradients.size());
  for (const auto& gradient : gradients) {
    if (gradient.values.numel() == 0) continue;
    table.pieces.push_back(entry_of(launch, gradient, table.num_blocks));
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

int64_t gradient_bytes(const std::vector<GradientPiece>& pieces) {
  int64_t bytes = 0;
  for (const auto& piece : pieces) bytes += tensor::touched_bytes(piece.values);
  return bytes;
}

}  // namespace

at::Tensor norms_on_device(NormKind kind, const std::vector<GradientPiece>& pieces,
                           int64_t num_tensors, at::Device device) {
  const auto numbers = at::TensorOptions().device(device).dtype(at::kDouble);
  auto results = at::zeros({num_tensors}, numbers);
  tensor::launch_kernel(
      "gradient_norm", device, gradient_bytes(pieces), [&](const tensor::KernelLaunch& launch) {
        const auto table = table_of(launch, pieces);
        if (table.pieces.empty()) return;
        const auto on_device = uploaded(table.pieces, device);
        auto partials = at::empty({table.num_blocks}, numbers);
        launch_norms(kind, static_cast<const NormPiece*>(launch.read(on_device)),
                     static_cast<int>(table.pieces.size()), static_cast<int>(table.num_blocks),
                     launch.write_as<double>(partials), launch.write_as<double>(results),
                     launch.stream());
      });
  return results;
}

at::Tensor clip_factor_on_device(NormKind kind, const at::Tensor& numbers,
                                 const ClipSettings& settings) {
  auto outcome = at::empty({2}, numbers.options());
  tensor::launch_kernel(
      "clip_factor", numbers.device(), int64_t{0}, [&](const tensor::KernelLaunch& launch) {
        launch_clip_factor(kind, launch.read_as<double>(numbers), numbers.numel(), settings,
                           launch.write_as<double>(outcome), launch.stream());
      });
  return outcome;
}

}  // namespace fullshard::engine
