// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include "fullshard/base/error.h"
#include "fullshard/optim/cuda/device_step.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::optim {
namespace {

// A plan for GPUs needs no kernel.
void refuse() {
  check(tensor::is_pretended(),
        "an optimizer's step on CUDA: this build of Fullshard has no CUDA; configure it with "
        "-DFULLSHARD_CUDA=ON and a libtorch that has CUDA");
}

}  // namespace

void step_on_device(const DevicePass&, const std::vector<AdamWStep>&) { refuse(); }
void step_on_device(const DevicePass&, const std::vector<SgdStep>&) { refuse(); }
void step_on_device(const DevicePass&, const std::vector<AdagradStep>&) { refuse(); }
void step_on_device(const DevicePass&, const std::vector<LionStep>&) { refuse(); }
at::Tensor moments_on_device(const DevicePass&, const std::vector<LambStep>&, int64_t num_tensors) {
  refuse();
  return at::empty({num_tensors, 2}, at::TensorOptions().device(at::kCUDA).dtype(at::kDouble));
}
at::Tensor trust_ratios_on_device(const at::Tensor& squares, float, float) {
  refuse();
  return at::empty({squares.size(1)}, squares.options().dtype(at::kFloat));
}
void step_on_device(const DevicePass&, const std::vector<LambStep>&, const at::Tensor&) {
  refuse();
}

}  // namespace fullshard::optim
