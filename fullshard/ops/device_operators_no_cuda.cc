// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::ops {
namespace {

// A plan for GPUs needs none of them.
void refuse(const char* what) {
  check(tensor::is_pretended(),
        "{}: this build has no CUDA kernels; configure with the cuda preset", what);
}

}  // namespace

bool has_cuda_kernel(const at::Tensor& tensor) {
  return tensor::is_pretended() && tensor.is_cuda() &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16);
}
bool has_cuda_kernel(std::initializer_list<at::Tensor> tensors) {
  const at::Tensor& first = *tensors.begin();
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return !tensor.defined() ||
           (has_cuda_kernel(tensor) && tensor.scalar_type() == first.scalar_type());
  });
}

void device_product(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool) {
  refuse("device_product");
}
void device_product_plus(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                         const at::Tensor&) {
  refuse("device_product_plus");
}
void device_column_sums(const WideTarget&, const at::Tensor&) { refuse("device_column_sums"); }
NormStatistics device_norm(const at::Tensor&, const at::Tensor& input, const NormTerms& terms) {
  refuse("device_norm");
  const int64_t num_rows = input.numel() / std::max<int64_t>(input.size(-1), 1);
  const auto wide = input.options().dtype(at::kFloat);
  return {terms.centred ? at::empty({num_rows}, wide) : at::Tensor(), at::empty({num_rows}, wide)};
}
void device_norm_again(const at::Tensor&, const at::Tensor&, const NormTerms&,
                       const NormStatistics&) {
  refuse("device_norm_again");
}
void device_norm_gradient(const NormGradientTargets&, const at::Tensor&, const at::Tensor&,
                          const at::Tensor&, const NormTerms&, const NormStatistics&) {
  refuse("device_norm_gradient");
}
void device_activate(const at::Tensor&, const at::Tensor&, Activation) {
  refuse("device_activate");
}
void device_activate_gradient(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                              const at::Tensor&, Activation) {
  refuse("device_activate_gradient");
}
void device_rotate(const at::Tensor&, int64_t, const RotaryTable&, const at::Tensor&, float) {
  refuse("device_rotate");
}
void device_pack_heads(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                       const RotaryTable*, const at::Tensor&) {
  refuse("device_pack_heads");
}
void device_entropy(const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, double,
                    bool) {
  refuse("device_entropy");
}
void device_add_rows(const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t) {
  refuse("device_add_rows");
}

}  // namespace fullshard::ops
