// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include "fullshard/base/error.h"
#include "fullshard/engine/gradients/device_norm.h"
#include "fullshard/tensor/operator_watch.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::engine {
namespace {

// A plan for GPUs needs no kernel.
void refuse() {
  check(tensor::is_pretended(),
        "the norm of gradients on CUDA: this build of Fullshard has no CUDA; configure it with "
        "-DFULLSHARD_CUDA=ON and a libtorch that has CUDA");
}

// One launch for all of them.
void pretend_norms(const std::vector<GradientPiece>& pieces) {
  int64_t bytes = 0;
  for (const auto& piece : pieces) bytes += tensor::touched_bytes(piece.values);
  tensor::note_kernel("gradient_norm", bytes);
}

}  // namespace

at::Tensor norms_on_device(NormKind, const std::vector<GradientPiece>& pieces, int64_t num_tensors,
                           at::Device device) {
  refuse();
  pretend_norms(pieces);
  return at::empty({num_tensors}, at::TensorOptions().device(device).dtype(at::kDouble));
}

at::Tensor clip_factor_on_device(NormKind, const at::Tensor& numbers, const ClipSettings&) {
  refuse();
  return at::empty({2}, numbers.options());
}

}  // namespace fullshard::engine
