// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/error.h"
#include "fullshard/ops/decoding/device_decoding.h"

namespace fullshard::ops {

bool has_device_few_rows(const at::Tensor&) { return false; }
bool has_device_few_rows(const at::Tensor&, const FewRowsOperands&, const at::Tensor&) {
  return false;
}
void device_few_rows(const at::Tensor&, const at::Tensor&, const FewRowsOperands&,
                     const at::Tensor&) {
  fail("device_few_rows: this build has no CUDA kernels; configure with the cuda preset");
}

bool has_device_step_attention(const StepAttention&) { return false; }
void device_step_attention(const at::Tensor&, const StepAttention&) {
  fail("device_step_attention: this build has no CUDA kernels; configure with the cuda preset");
}

}  // namespace fullshard::ops
