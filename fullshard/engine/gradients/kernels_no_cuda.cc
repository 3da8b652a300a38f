// SPDX-License-Identifier: Apache-2.0
// The launchers of a build without CUDA, where no world has a GPU.
#include "fullshard/base/error.h"
#include "fullshard/engine/gradients/device_norm_kernels.h"
#include "fullshard/engine/gradients/exponent_kernels.h"
#include "fullshard/tensor/device_runtime.h"

namespace fullshard::engine {
namespace {

using tensor::DeviceStream;

[[noreturn]] void refuse() { fail("gradients on a GPU: {}", tensor::launch_problem()); }

}  // namespace

void launch_norms(NormKind, const NormPiece*, int, int, double*, double*, DeviceStream) {
  refuse();
}
void launch_clip_factor(NormKind, const double*, int64_t, ClipSettings, double*, DeviceStream) {
  refuse();
}
void launch_find_exponent(int32_t*, const void*, int64_t, ExponentBits, DeviceStream) { refuse(); }

}  // namespace fullshard::engine
