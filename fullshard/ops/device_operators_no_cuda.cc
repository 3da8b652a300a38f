// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/error.h"
#include "fullshard/ops/device_operators.h"

namespace fullshard::ops {
namespace {

[[noreturn]] void refuse(const char* what) {
  fail("{}: this build has no CUDA kernels; configure with the cuda preset", what);
}

}  // namespace

bool has_cuda_kernel(const at::Tensor&) { return false; }
bool has_cuda_kernel(std::initializer_list<at::Tensor>) { return false; }

void device_product(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool) {
  refuse("device_product");
}
void device_product_plus(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                         const at::Tensor&) {
  refuse("device_product_plus");
}
void device_column_sums(const WideTarget&, const at::Tensor&) { refuse("device_column_sums"); }
NormStatistics device_norm(const at::Tensor&, const at::Tensor&, const NormTerms&) {
  refuse("device_norm");
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
