// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>

#include "fullshard/ops/products/fp8_product.h"

namespace fullshard::ops {

// Every sum in fp32: `sums_fast` allows less, and asks for nothing.
void multiply_fp8(const tensor::KernelLaunch&, const at::Tensor& output, const Fp8Operand& left,
                  const Fp8Operand& right, const Fp8ProductTerms& terms) {
  const at::NoGradGuard no_grad;
  auto product = at::mm(left.values.to(at::kFloat), right.values.to(at::kFloat).t());
  product.mul_(left.factor).mul_(right.factor);
  if (terms.bias.defined()) product.add_(terms.bias);
  if (terms.addend.defined()) product.add_(terms.addend);
  if (terms.accumulate) {
    output.add_(product);
  } else {
    output.copy_(product);
  }
}

}  // namespace fullshard::ops
