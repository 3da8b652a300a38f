// SPDX-License-Identifier: Apache-2.0
// device_product of device_operators.h: what is cut, copied or left out before cuBLAS is asked.
#include "fullshard/base/error.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/products/blas_product.h"
#include "fullshard/tensor/kernel_launch.h"

namespace fullshard::ops {
namespace {

void check_product_shapes(const at::Tensor& output, const at::Tensor& left,
                          const at::Tensor& right) {
  check(left.size(1) == right.size(0) && output.size(0) == left.size(0) &&
            output.size(1) == right.size(1) && (output.stride(1) == 1 || output.size(1) == 1),
        "device_product: [{}, {}] * [{}, {}] into [{}, {}]; the shapes do not fit", left.size(0),
        left.size(1), right.size(0), right.size(1), output.size(0), output.size(1));
}

// Nothing to multiply: cuBLAS need not be asked. True when all is done.
bool is_trivial(const at::Tensor& output, const at::Tensor& left) {
  return output.numel() == 0 || left.size(1) == 0;
}

// Rows of an output that begin at packs of 16 bytes and end within one, as a head's logits do:
// calls `multiply(first, count)` for the columns in packs and then for the few others. All at once
// they would take the slow kernels of odd sizes, which need several times as long. False: there are
// no such rows.
template <class Multiply>
bool multiply_in_parts(const at::Tensor& output, const at::Tensor& operand,
                       const Multiply& multiply) {
  constexpr int64_t kPackColumns = 8, kFewColumns = 512;
  const int64_t columns = output.size(1), whole = columns / kPackColumns * kPackColumns;
  const bool is_16_bit = output.element_size() == 2 && operand.element_size() == 2;
  const bool begins_at_packs = output.stride(0) % kPackColumns == 0;
  if (!is_16_bit || !begins_at_packs || columns < kFewColumns || whole == columns) return false;
  multiply(0, whole);
  multiply(whole, columns - whole);
  return true;
}

at::Tensor narrowed_columns(const at::Tensor& matrix, int64_t first, int64_t count) {
  return matrix.defined() ? matrix.narrow(-1, first, count) : matrix;
}

}  // namespace

void device_product(const at::Tensor& output, const at::Tensor& left, const at::Tensor& right,
                    bool accumulate) {
  check_product_shapes(output, left, right);
  if (tensor::is_pretended()) return tensor::note_product(output, left, right);
  if (is_trivial(output, left)) {
    if (!accumulate) output.zero_();
    return;
  }
  const bool is_done = multiply_in_parts(output, left, [&](int64_t first, int64_t count) {
    device_product(output.narrow(1, first, count), left, right.narrow(1, first, count), accumulate);
  });
  if (is_done) return;
  const tensor::KernelLaunch launch("product", output.device());
  blas_product(launch, output, left, right, accumulate);
}

void device_product_plus(const at::Tensor& output, const at::Tensor& left, const at::Tensor& right,
                         const at::Tensor& bias, const at::Tensor& addend) {
  if (!bias.defined() && !addend.defined()) return device_product(output, left, right);
  check_product_shapes(output, left, right);
  if (tensor::is_pretended()) return tensor::note_product(output, left, right);
  const bool is_done = multiply_in_parts(output, left, [&](int64_t first, int64_t count) {
    device_product_plus(output.narrow(1, first, count), left, right.narrow(1, first, count),
                        narrowed_columns(bias, first, count),
                        narrowed_columns(addend, first, count));
  });
  if (is_done) return;
  const bool is_dense = !addend.defined() || (addend.stride(1) == 1 && addend.stride(0) > 0);
  const auto base = is_dense ? addend : addend.contiguous();
  if (!is_trivial(output, left)) {
    const tensor::KernelLaunch launch("product", output.device());
    if (blas_product_plus(launch, output, left, right, bias, base)) return;
  }
  if (addend.defined()) output.copy_(addend);
  device_product(output, left, right, /*accumulate=*/addend.defined());
  if (bias.defined()) output.add_(bias);
}

}  // namespace fullshard::ops
