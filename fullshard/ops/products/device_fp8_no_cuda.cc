// SPDX-License-Identifier: Apache-2.0
// A plan allocates what the kernels would, and none of these is reached.
#include "fullshard/base/error.h"
#include "fullshard/ops/products/device_fp8_kernels.h"

namespace fullshard::ops {
namespace {

[[noreturn]] void refuse_fp8() {
  fail("fp8: this build has no CUDA kernels; configure with the cuda preset");
}

}  // namespace

void launch_largest(const at::Tensor&, bool, const at::Tensor&) { refuse_fp8(); }
void launch_to_fp8(const Fp8Operand&, const Fp8Operand&, const at::Tensor&, const at::Tensor&,
                   Fp8Format) {
  refuse_fp8();
}
void launch_fp8_product(const at::Tensor&, const Fp8Operand&, const Fp8Operand&,
                        const Fp8ProductTerms&) {
  refuse_fp8();
}

}  // namespace fullshard::ops
