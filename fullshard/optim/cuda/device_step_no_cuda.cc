// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include "fullshard/base/error.h"
#include "fullshard/optim/cuda/device_step.h"
#include "fullshard/tensor/operator_watch.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::optim {
namespace {

// A plan for GPUs needs no kernel.
void refuse() {
  check(tensor::is_pretended(),
        "an optimizer's step on CUDA: this build of Fullshard has no CUDA; configure it with "
        "-DFULLSHARD_CUDA=ON and a libtorch that has CUDA");
}

void pretend_pass(const DevicePass& pass) {
  refuse();
  tensor::note_kernel("optimizer_step", pass.table.bytes_of_a_pass());
}

}  // namespace

void step_on_device(const DevicePass& pass, const std::vector<AdamWStep>&) { pretend_pass(pass); }
void step_on_device(const DevicePass& pass, const std::vector<SgdStep>&) { pretend_pass(pass); }
void step_on_device(const DevicePass& pass, const std::vector<AdagradStep>&) { pretend_pass(pass); }
void step_on_device(const DevicePass& pass, const std::vector<LionStep>&) { pretend_pass(pass); }
at::Tensor moments_on_device(const DevicePass& pass, const std::vector<LambStep>&,
                             int64_t num_tensors) {
  pretend_pass(pass);
  return at::empty({num_tensors, 2}, at::TensorOptions().device(at::kCUDA).dtype(at::kDouble));
}
at::Tensor trust_ratios_on_device(const at::Tensor& squares, float, float) {
  refuse();
  return at::empty({squares.size(1)}, squares.options().dtype(at::kFloat));
}
void step_on_device(const DevicePass& pass, const std::vector<LambStep>&, const at::Tensor&) {
  pretend_pass(pass);
}

}  // namespace fullshard::optim
