#include "fullshard/ops/weight_gradient.h"

#include <ATen/ops/mm.h>

#include "fullshard/nn/gradient_hook.h"

namespace fullshard {
namespace {

at::Tensor as_matrix(const at::Tensor& tensor) { return tensor.reshape({-1, tensor.size(-1)}); }

}  // namespace

at::Tensor weight_gradient(const at::Tensor& parameter, const at::Tensor& input,
                           const at::Tensor& output_gradient) {
  const auto left = as_matrix(output_gradient).t();
  const auto right = as_matrix(input);
  auto sink = open_gradient_sink(parameter);
  if (!sink.target.defined()) return left.mm(right);
  const bool same_dtype = sink.target.scalar_type() == right.scalar_type();
  if (same_dtype && sink.accumulate) {
    sink.target.addmm_(left, right);
  } else if (same_dtype) {
    at::mm_out(sink.target, left, right);
  } else if (sink.accumulate) {
    sink.target.add_(left.mm(right));
  } else {
    sink.target.copy_(left.mm(right));
  }
  return {};
}

}  // namespace fullshard
