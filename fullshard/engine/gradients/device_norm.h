// SPDX-License-Identifier: Apache-2.0
// Norms of gradients in the memory of a GPU, on the current stream: nothing waits for them.
// A build without CUDA refuses by a message.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "fullshard/engine/gradients/device_norm_kernels.h"

namespace fullshard::engine {

struct GradientPiece {
  at::Tensor values;   // contiguous; nothing may free it before the stream has come by
  int64_t tensor = 0;  // its place among the tensors of the model
};

// Σ x² or max |x| of each piece: fp64 [num_tensors] on the device, zero for tensors without a
// piece.
at::Tensor norms_on_device(NormKind kind, const std::vector<GradientPiece>& pieces,
                           int64_t num_tensors, at::Device device);

// fp64 [2] on the device: the norm over all those numbers and the factor for gradients; see
// launch_clip_factor.
at::Tensor clip_factor_on_device(NormKind kind, const at::Tensor& numbers,
                                 const ClipSettings& settings);

}  // namespace fullshard::engine
