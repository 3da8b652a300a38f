// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/tensor/operator_watch.h"
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

void device_product(const at::Tensor& output, const at::Tensor& left, const at::Tensor& right,
                    bool) {
  refuse("device_product");
  tensor::note_product(output, left, right);
}
void device_product_plus(const at::Tensor& output, const at::Tensor& left, const at::Tensor& right,
                         const at::Tensor&, const at::Tensor&) {
  refuse("device_product_plus");
  tensor::note_product(output, left, right);
}
void device_column_sums(const WideTarget&, const at::Tensor& matrix) {
  refuse("device_column_sums");
  tensor::note_kernel("column_sums", {matrix});
}
NormStatistics device_norm(const at::Tensor& output, const at::Tensor& input,
                           const NormTerms& terms, const at::Tensor&) {
  refuse("device_norm");
  tensor::note_kernel("norm", {input, output});
  const int64_t num_rows = input.numel() / std::max<int64_t>(input.size(-1), 1);
  const auto wide = input.options().dtype(at::kFloat);
  return {terms.centred ? at::empty({num_rows}, wide) : at::Tensor(), at::empty({num_rows}, wide)};
}
void device_norm_again(const at::Tensor& output, const at::Tensor& input, const NormTerms&,
                       const NormStatistics&) {
  refuse("device_norm_again");
  tensor::note_kernel("norm", {input, output});
}
void device_norm_gradient(const NormGradientTargets&, const at::Tensor& output_gradient,
                          const at::Tensor& added, const at::Tensor& input, const NormTerms&,
                          const NormStatistics&) {
  refuse("device_norm_gradient");
  tensor::note_kernel("norm_backward", {input, input, output_gradient, added});
}
void device_activate(const at::Tensor& output, const at::Tensor& input, Activation,
                     const at::Tensor&, const Dropout&) {
  refuse("device_activate");
  tensor::note_kernel("activation", {input, output});
}
void device_activate_gradient(const at::Tensor& input_gradient, const at::Tensor& output,
                              const at::Tensor& output_gradient, const at::Tensor& input,
                              Activation, const at::Tensor&, const Dropout&) {
  refuse("device_activate_gradient");
  tensor::note_kernel("activation_backward", {input, input_gradient, output_gradient, output});
}
void device_drop(const at::Tensor& output, const at::Tensor& values, const at::Tensor& residual,
                 const Dropout&) {
  refuse("device_drop");
  tensor::note_kernel("dropout", {output, values, residual});
}
void device_rotate(const at::Tensor& rows, int64_t, const RotaryTable&, const at::Tensor&, float) {
  refuse("device_rotate");
  tensor::note_kernel("rotary", {rows, rows});
}
void device_pack_heads(const at::Tensor& rows, const at::Tensor& query, const at::Tensor& key,
                       const at::Tensor& value, const RotaryTable*, const at::Tensor&) {
  refuse("device_pack_heads");
  tensor::note_kernel("rotary_backward", {rows, query, key, value});
}
void device_entropy(const at::Tensor& logits, const at::Tensor&, const at::Tensor&, int64_t, double,
                    bool) {
  refuse("device_entropy");
  tensor::note_kernel("cross_entropy", {logits, logits});
}
void device_widen_rows(const at::Tensor& output, const at::Tensor& values, const at::Tensor&) {
  refuse("device_widen_rows");
  tensor::note_kernel("widen_rows", {output, values});
}
void device_add_rows(const at::Tensor&, const at::Tensor&, const at::Tensor& rows, int64_t) {
  refuse("device_add_rows");
  tensor::note_kernel("add_rows", {rows, rows, rows});
}

}  // namespace fullshard::ops
