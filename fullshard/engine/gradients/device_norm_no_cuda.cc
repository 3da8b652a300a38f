// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/error.h"
#include "fullshard/engine/gradients/device_norm.h"

namespace fullshard::engine {
namespace {

[[noreturn]] void refuse() {
  fail(
      "the norm of gradients on CUDA: this build of Fullshard has no CUDA; configure it with "
      "-DFULLSHARD_CUDA=ON and a libtorch that has CUDA");
}

}  // namespace

at::Tensor norms_on_device(NormKind, const std::vector<GradientPiece>&, int64_t, at::Device) {
  refuse();
}

at::Tensor clip_factor_on_device(NormKind, const at::Tensor&, const ClipSettings&) { refuse(); }

}  // namespace fullshard::engine
