// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/embedding.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "fullshard/nn/gradient_hook.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void add_rows(const nn::GradientSink& sink, at::Tensor indices, at::Tensor rows,
              int64_t padding_index) {
  if (!sink.accumulate) sink.target.zero_();
  if (ops::has_cuda_kernel(rows) && sink.target.scalar_type() == at::kFloat &&
      sink.target.is_contiguous()) {
    return ops::device_add_rows(sink.target, indices.to(at::kLong).contiguous(), rows.contiguous(),
                                padding_index);
  }
  if (padding_index >= 0 && !tensor::is_pretended()) {  // a plan's batches have no padding
    const auto is_used = indices.ne(padding_index);
    indices = indices.masked_select(is_used);
    rows = rows.index({is_used});
  }
  sink.target.index_add_(0, indices, rows.to(sink.target.scalar_type()));
}

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight,
                            const at::Tensor& indices, int64_t padding_index) {
    context->save_for_backward({indices});
    // Not a saved variable: only its sink and its shape are asked for, never its values.
    context->saved_data["parameter"] = weight;
    context->saved_data["padding_index"] = padding_index;
    return at::embedding(weight, indices, padding_index);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto indices = context->get_saved_variables()[0];
    const auto& weight = context->saved_data["parameter"].toTensor();
    const auto padding_index = context->saved_data["padding_index"].toInt();
    const auto& gradient = gradients[0];
    const auto sink = nn::open_gradient_sink(weight);
    if (!sink.target.defined()) {
      return {at::embedding_dense_backward(gradient, indices, weight.size(0), padding_index, false),
              {},
              {}};
    }
    add_rows(sink, indices.reshape({-1}), gradient.reshape({-1, weight.size(1)}), padding_index);
    return {{}, {}, {}};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& indices, const at::Tensor& weight, int64_t padding_index) {
  const bool has_gradient = weight.requires_grad() && weight.is_leaf();
  if (!has_gradient || !at::GradMode::is_enabled()) {
    return at::embedding(weight, indices, padding_index);
  }
  return EmbeddingFunction::apply(weight, indices, padding_index);
}

at::Tensor EmbeddingImpl::forward(const at::Tensor& indices) {
  if (options.max_norm().has_value() || options.scale_grad_by_freq() || options.sparse()) {
    return torch::nn::EmbeddingImpl::forward(indices);
  }
  // torch counts a negative padding index from the end.
  auto padding_index = options.padding_idx().value_or(-1);
  if (options.padding_idx().has_value() && padding_index < 0) padding_index += weight.size(0);
  return fullshard::embedding(indices, weight, padding_index);
}

}  // namespace fullshard
