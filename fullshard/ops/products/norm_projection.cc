// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/products/norm_projection.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>

#include "fullshard/base/error.h"
#include "fullshard/ops/absent_tensor.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/dropout.h"
#include "fullshard/ops/kernels/kernel_dispatch.h"
#include "fullshard/ops/kernels/matrix.h"
#include "fullshard/ops/products/adapted_projection.h"
#include "fullshard/ops/products/linear.h"
#include "fullshard/ops/products/projection.h"
#include "fullshard/ops/products/weight_gradient.h"
#include "fullshard/ops/wide_gradient.h"

namespace fullshard::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

int64_t total_rows(at::TensorList weights) {
  int64_t total = 0;
  for (const auto& weight : weights) total += weight.size(0);
  return total;
}

// Tensors, empty where absent: the input, weight and bias of the norm, then as many weights as
// biases. Results: the packed outputs, and the input.
constexpr size_t kNormWeight = 1, kNormBias = 2, kFirstWeight = 3;

struct NormProjectionFunction : torch::autograd::Function<NormProjectionFunction> {
  static variable_list forward(AutogradContext* context, at::TensorList tensors, double epsilon,
                               bool centred) {
    const size_t count = (tensors.size() - kFirstWeight) / 2;
    const auto weights = tensors.slice(kFirstWeight, count);
    std::vector<at::Tensor> biases;
    for (const auto& bias : tensors.slice(kFirstWeight + count, count)) {
      biases.push_back(undefined_if_empty(bias));
    }
    const auto input = tensors[0].contiguous();
    const NormTerms norm{tensors[kNormWeight], undefined_if_empty(tensors[kNormBias]), epsilon,
                         centred};
    const auto normalised = at::empty(input.sizes(), input.options());
    const auto largest = make_largest_for(input, weights);
    const auto statistics = device_norm(normalised, input, norm, largest);
    auto packed = at::empty(sizes_of_width(input, total_rows(weights)), input.options());
    const auto maxima =
        project(as_matrix(packed), as_matrix(normalised), weights, biases, {}, largest);

    variable_list saved{input,       norm.weight,   norm.bias, statistics.mean, statistics.inverse,
                        maxima.rows, maxima.weights};
    saved.insert(saved.end(), weights.begin(), weights.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["parameters"] = tensors.slice(1).vec();
    context->saved_data["is_hybrid"] = maxima.is_hybrid;
    // A use of one result only must not make zeros for the other.
    context->set_materialize_grads(false);
    return {packed, tensors[0].detach()};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivative("norm_projection");
    const auto parameters = context->saved_data["parameters"].toTensorVector();
    variable_list results(parameters.size() + 3);
    if (!gradients[0].defined()) {
      results[0] = gradients[1];
      return results;
    }
    const Saved saved(context->get_saved_variables(), context->saved_data["is_hybrid"].toBool());
    const auto rows = at::empty(saved.input.sizes(), saved.input.options());
    ProjectionGradient gradient(gradients[0], saved.maxima);
    take_weight_gradients(context, saved, parameters, rows, gradient, results);
    take_bias_gradients(context, saved, parameters, gradient.matrix(), results);
    const bool wants_norm = context->needs_input_grad(0) || context->needs_input_grad(1) ||
                            context->needs_input_grad(2);
    if (!wants_norm) return results;
    // The normalised rows have served: their gradient takes their place, and the input's that
    // one's.
    gradient.to_rows(as_matrix(rows), saved.weights);
    const WideGradient weight(context->needs_input_grad(1) ? parameters[0] : at::Tensor());
    const WideGradient bias(context->needs_input_grad(2) ? parameters[1] : at::Tensor());
    const auto residual = gradients[1].defined() ? gradients[1].contiguous() : at::Tensor();
    // What came before in the layer, or the layer before, multiplies it next.
    const auto largest = gradient.is_in_fp8() ? make_largest(rows) : at::Tensor();
    device_norm_gradient({rows, weight.target(), bias.target(), largest}, rows, residual,
                         saved.input, saved.norm, saved.statistics);
    if (context->needs_input_grad(0)) results[0] = rows;
    if (largest.defined()) note_largest(rows, largest);
    results[kNormWeight] = weight.finish();
    results[kNormBias] = bias.finish();
    return results;
  }

 private:
  struct Saved {
    Saved(const variable_list& list, bool is_hybrid)
        : input(list[0]),
          norm{.weight = list[1], .bias = list[2], .centred = list[3].defined()},
          statistics{list[3], list[4]},
          maxima{list[5], list[6], is_hybrid},
          weights(list.begin() + 7, list.end()) {}

    at::Tensor input;
    NormTerms norm;
    NormStatistics statistics;
    Fp8Maxima maxima;
    std::vector<at::Tensor> weights;
  };

  // Leaves the normalised input in `rows` when it is needed.
  static void take_weight_gradients(AutogradContext* context, const Saved& saved,
                                    const std::vector<at::Tensor>& parameters,
                                    const at::Tensor& rows, ProjectionGradient& gradient,
                                    variable_list& results) {
    const size_t count = saved.weights.size();
    const std::vector<at::Tensor> own(parameters.begin() + 2, parameters.begin() + 2 + count);
    std::vector<bool> is_wanted(count);
    for (size_t i = 0; i < count; ++i) is_wanted[i] = context->needs_input_grad(kFirstWeight + i);
    if (std::find(is_wanted.begin(), is_wanted.end(), true) == is_wanted.end()) return;
    device_norm_again(rows, saved.input, saved.norm, saved.statistics);
    const auto made = gradient.to_weights(own, is_wanted, as_matrix(rows));
    std::copy(made.begin(), made.end(), results.begin() + kFirstWeight);
  }

  static void take_bias_gradients(AutogradContext* context, const Saved& saved,
                                  const std::vector<at::Tensor>& parameters,
                                  const at::Tensor& packed, variable_list& results) {
    const size_t count = saved.weights.size();
    int64_t first = 0;
    for (size_t i = 0; i < count; ++i) {
      const int64_t width = saved.weights[i].size(0);
      const size_t place = kFirstWeight + count + i;
      if (context->needs_input_grad(place)) {
        results[place] = bias_gradient(parameters[place - 1], packed.narrow(1, first, width));
      }
      first += width;
    }
  }
};

bool projects_on_device(const at::Tensor& input, const NormTerms& norm,
                        const std::vector<at::Tensor>& weights,
                        const std::vector<at::Tensor>& biases) {
  if (!has_cuda_kernel({input, norm.weight, norm.bias}) || input.numel() == 0) return false;
  const int64_t width = input.size(-1);
  const auto is_vector = [](const at::Tensor& tensor, int64_t numel) {
    return !tensor.defined() ||
           (tensor.dim() == 1 && tensor.size(0) == numel && tensor.is_contiguous());
  };
  if (!is_vector(norm.weight, width) || !is_vector(norm.bias, width)) return false;
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto& weight = weights[i];
    if (!has_cuda_kernel({input, weight, biases[i]})) return false;
    if (weight.dim() != 2 || weight.size(1) != width || !weight.is_contiguous()) return false;
    if (!is_vector(biases[i], weight.size(0))) return false;
  }
  return true;
}

// What each layer has of one kind, side by side.
template <class Of>
std::vector<at::Tensor> collected(const std::vector<LinearTerms>& layers, const Of& of) {
  std::vector<at::Tensor> tensors;
  for (const auto& layer : layers) tensors.push_back(of(layer));
  return tensors;
}

bool adapts_on_device(const at::Tensor& input, const NormTerms& norm,
                      const std::vector<LinearTerms>& layers) {
  for (const auto& layer : layers) {
    const bool is_int8 = layer.row_scales.defined();
    const bool has_base = is_int8 || projects_on_device(input, norm, {layer.weight}, {layer.bias});
    const auto& a = layer.low_rank.a;
    if (!has_base || (a.defined() && !projects_on_device(input, norm, {a}, {{}}))) return false;
  }
  return has_cuda_kernel({input, norm.weight, norm.bias}) && input.numel() > 0;
}

// Weights in 8 bits are widened for one product each, which keeps nothing of the rows.
NormProjection frozen_projection(const at::Tensor& input, const NormTerms& norm,
                                 const std::vector<LinearTerms>& layers) {
  if (std::ranges::none_of(layers,
                           [](const LinearTerms& one) { return one.row_scales.defined(); })) {
    return norm_projection(input, norm, collected(layers, std::mem_fn(&LinearTerms::weight)),
                           collected(layers, std::mem_fn(&LinearTerms::bias)));
  }
  const auto normalised = apply_norm(input, norm);
  const auto parts = collected(layers, [&](const LinearTerms& layer) {
    return linear(normalised, {.weight = layer.weight,
                               .bias = layer.bias,
                               .low_rank = {},
                               .row_scales = layer.row_scales});
  });
  return {{.packed = at::cat(parts, -1)}, input};
}

// dropout(rows) * a^T of each layer that has an adapter. Without dropout all at once, keeping
// nothing but the input.
std::vector<at::Tensor> narrow_rows(NormProjection& base, const NormTerms& norm,
                                    const std::vector<LinearTerms>& adapted) {
  const bool drops = std::ranges::any_of(
      adapted, [](const LinearTerms& layer) { return layer.low_rank.dropout > 0; });
  if (drops) {
    const auto normalised = apply_norm(base.residual, norm);
    return collected(adapted, [&](const LinearTerms& layer) {
      return fullshard::linear(dropped(normalised, layer.low_rank.dropout), layer.low_rank.a);
    });
  }
  const auto all =
      norm_projection(base.residual, norm,
                      collected(adapted, [](const auto& layer) { return layer.low_rank.a; }), {});
  base.residual = all.residual;
  std::vector<at::Tensor> rows;
  int64_t first = 0;
  for (const auto& layer : adapted) {
    const int64_t rank = layer.low_rank.a.size(0);
    rows.push_back(all.projected.packed.narrow(-1, first, rank).contiguous());
    first += rank;
  }
  return rows;
}

// With dropout before adapters, or a norm that is trained: the frozen weights as ever, packed, and
// what the adapters make of the same rows added to it.
NormProjection adapted_on_device(const at::Tensor& input, const NormTerms& norm,
                                 const std::vector<LinearTerms>& layers) {
  NormProjection result = frozen_projection(input, norm, layers);
  std::vector<LinearTerms> adapted;
  for (const auto& layer : layers) {
    if (layer.low_rank.a.defined()) adapted.push_back(layer);
  }
  if (adapted.empty()) return result;
  const auto narrow = narrow_rows(result, norm, adapted);
  std::vector<at::Tensor> parts;
  size_t next = 0;
  for (const auto& layer : layers) {
    if (layer.low_rank.a.defined()) {
      const auto& rows = narrow[next++];
      const double scale = layer.low_rank.scale;
      parts.push_back(fullshard::linear(scale == 1 ? rows : rows * scale, layer.low_rank.b));
    } else {
      parts.push_back(at::zeros(sizes_of_width(input, layer.weight.size(0)), input.options()));
    }
  }
  result.projected.packed = result.projected.packed + at::cat(parts, -1);
  return result;
}

}  // namespace

NormProjection norm_projection(const at::Tensor& input, const NormTerms& norm,
                               const std::vector<at::Tensor>& weights,
                               const std::vector<at::Tensor>& biases) {
  check(!weights.empty() && (biases.empty() || biases.size() == weights.size()),
        "norm_projection: {} weights and {} biases; give at least one weight, and a bias (defined "
        "or not) for each or none at all",
        weights.size(), biases.size());
  auto own_biases = biases;
  own_biases.resize(weights.size());
  if (!projects_on_device(input, norm, weights, own_biases)) {
    const auto normalised = apply_norm(input, norm);
    NormProjection result{{}, input};
    for (size_t i = 0; i < weights.size(); ++i) {
      result.projected.parts.push_back(linear(normalised, weights[i], own_biases[i]));
    }
    return result;
  }
  variable_list tensors{input, norm.weight, empty_if_absent(norm.bias, input)};
  tensors.insert(tensors.end(), weights.begin(), weights.end());
  for (const auto& bias : own_biases) tensors.push_back(empty_if_absent(bias, input));
  auto made = NormProjectionFunction::apply(at::TensorList(tensors), norm.epsilon, norm.centred);
  return {{.packed = made[0]}, made[1]};
}

NormProjection norm_projection(const at::Tensor& input, const NormTerms& norm,
                               const std::vector<LinearTerms>& layers) {
  if (std::ranges::all_of(layers, &LinearTerms::is_plain)) {
    const auto weights = collected(layers, std::mem_fn(&LinearTerms::weight));
    const auto biases = collected(layers, std::mem_fn(&LinearTerms::bias));
    return norm_projection(input, norm, weights, biases);
  }
  if (adapts_at_once(input, norm, layers)) return adapted_norm_projection(input, norm, layers);
  if (adapts_on_device(input, norm, layers)) return adapted_on_device(input, norm, layers);
  const auto normalised = apply_norm(input, norm);
  NormProjection result{{}, input};
  for (const auto& layer : layers) result.projected.parts.push_back(linear(normalised, layer));
  return result;
}

}  // namespace fullshard::ops
