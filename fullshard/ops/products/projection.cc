// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/products/projection.h"

#include <algorithm>
#include <utility>

#include "fullshard/nn/product_precision.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/kernels/matrix.h"
#include "fullshard/ops/products/joined_rows.h"
#include "fullshard/ops/products/weight_gradient.h"

namespace fullshard::ops {
namespace {

bool has_bias(at::TensorList biases) {
  return std::any_of(biases.begin(), biases.end(),
                     [](const at::Tensor& bias) { return bias.defined(); });
}

at::Tensor columns_of(const at::Tensor& matrix, int64_t first, int64_t width) {
  return matrix.defined() ? matrix.narrow(1, first, width) : matrix;
}

void project_as_they_are(const at::Tensor& packed, const at::Tensor& rows, at::TensorList weights,
                         at::TensorList biases, const at::Tensor& addend) {
  const bool is_joined = weights.size() == 1 || !has_bias(biases);
  const auto whole = is_joined ? joined_rows(weights.vec()) : at::Tensor();
  if (whole.defined()) return device_product_plus(packed, rows, whole.t(), biases[0], addend);
  int64_t first = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const int64_t width = weights[i].size(0);
    device_product_plus(packed.narrow(1, first, width), rows, weights[i].t(), biases[i],
                        columns_of(addend, first, width));
    first += width;
  }
}

Fp8Maxima project_in_fp8(const at::Tensor& packed, const at::Tensor& given, at::TensorList weights,
                         at::TensorList biases, const at::Tensor& addend,
                         const at::Tensor& largest) {
  const auto rows = given.contiguous();
  const auto maxima = maxima_of(rows, weights, largest);
  const auto left = device_fp8_rows(rows, maxima.rows, Fp8Format::e4m3);
  const auto right = device_fp8_joined_rows(weights, maxima.weights);
  if (weights.size() == 1 || !has_bias(biases)) {
    device_fp8_product(packed, left, right,
                       {.bias = biases[0], .addend = addend, .sums_fast = true});
    return maxima;
  }
  int64_t first = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const int64_t width = weights[i].size(0);
    device_fp8_product(
        packed.narrow(1, first, width), left, right.narrow(first, width),
        {.bias = biases[i], .addend = columns_of(addend, first, width), .sums_fast = true});
    first += width;
  }
  return maxima;
}

}  // namespace

Fp8Maxima project(const at::Tensor& packed, const at::Tensor& rows, at::TensorList weights,
                  at::TensorList biases, const at::Tensor& addend, const at::Tensor& largest) {
  if (computes_in_fp8(rows, weights)) {
    return project_in_fp8(packed, rows, weights, biases, addend, largest);
  }
  project_as_they_are(packed, rows, weights, biases, addend);
  return {};
}

Fp8Maxima project_wide(const at::Tensor& packed, const at::Tensor& rows, at::TensorList weights,
                       at::TensorList biases, const at::Tensor& addend, const at::Tensor& largest) {
  project_as_they_are(packed, rows, weights, biases, addend);
  return maxima_of(rows, weights, largest);
}

Fp8Maxima maxima_of(const at::Tensor& rows, at::TensorList weights, const at::Tensor& largest) {
  if (!computes_in_fp8(rows, weights)) return {};
  return {largest.defined() ? largest : device_largest(rows.contiguous()), device_largest(weights),
          nn::product_precision() == ProductPrecision::fp8};
}

bool is_product_of_gate(const at::Tensor& input, const at::Tensor& weight) {
  return input.size(-1) == 2 * weight.size(1);
}

at::Tensor make_largest_for(const at::Tensor& like, at::TensorList weights) {
  return computes_in_fp8(like, weights) ? make_largest(like) : at::Tensor();
}

ProjectionGradient::ProjectionGradient(const at::Tensor& gradient, Fp8Maxima maxima)
    : gradient_(as_matrix(gradient.contiguous())), maxima_(std::move(maxima)) {
  if (is_in_fp8() && gradient.is_contiguous()) largest_ = noted_largest(gradient);
}

const Fp8Both& ProjectionGradient::in_fp8() {
  if (!in_fp8_) {
    in_fp8_ = device_fp8_both(gradient_, largest_.defined() ? largest_ : device_largest(gradient_),
                              maxima_.is_hybrid ? Fp8Format::e5m2 : Fp8Format::e4m3);
  }
  return *in_fp8_;
}

void ProjectionGradient::to_rows(const at::Tensor& target, at::TensorList weights,
                                 const at::Tensor& addend) {
  if (is_in_fp8()) {
    const auto turned = device_fp8_joined_turned(weights, maxima_.weights);
    return device_fp8_product(target, in_fp8().rows, turned, {.addend = addend, .sums_fast = true});
  }
  const auto whole = joined_rows(weights.vec());
  if (whole.defined()) return device_product_plus(target, gradient_, whole, {}, addend);
  int64_t first = 0;
  for (const auto& weight : weights) {
    const auto own = gradient_.narrow(1, first, weight.size(0));
    if (first == 0) {
      device_product_plus(target, own, weight, {}, addend);
    } else {
      device_product(target, own, weight, /*accumulate=*/true);
    }
    first += weight.size(0);
  }
}

std::vector<at::Tensor> ProjectionGradient::to_weights(const std::vector<at::Tensor>& parameters,
                                                       const std::vector<bool>& is_wanted,
                                                       const at::Tensor& rows) {
  if (!is_in_fp8()) return weight_gradients(parameters, is_wanted, rows, gradient_);
  const auto input = device_fp8_turned(rows.contiguous(), maxima_.rows, Fp8Format::e4m3);
  return weight_gradients(parameters, is_wanted, in_fp8().turned, input);
}

}  // namespace fullshard::ops
