// SPDX-License-Identifier: Apache-2.0
// Normalisations over the last dimension.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace fullshard {

// weight * x / sqrt(mean(x^2) + epsilon): Llama's RMS norm and T5's layer norm. Statistics are in
// fp32 whatever the dtype; the normalised values are rounded to it before the product with weight.
at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon);

// The values of at::layer_norm and its gradients; `bias` may be undefined.
at::Tensor layer_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                      double epsilon);

// A norm apart from what it is applied to.
struct NormTerms {
  at::Tensor weight;
  at::Tensor bias = {};  // layer norm only, and there it may be undefined
  double epsilon = 1e-5;
  bool centred = false;  // layer norm, which takes the mean away; else RMS norm
};

at::Tensor apply_norm(const at::Tensor& input, const NormTerms& terms);

class RmsNormImpl : public torch::nn::Module {
 public:
  RmsNormImpl(int64_t width, double epsilon);
  at::Tensor forward(const at::Tensor& input) { return rms_norm(input, weight, epsilon_); }
  NormTerms terms() const { return {.weight = weight, .epsilon = epsilon_}; }

  at::Tensor weight;  // ones

 private:
  double epsilon_;
};
TORCH_MODULE(RmsNorm);

class LayerNormImpl : public torch::nn::Module {
 public:
  LayerNormImpl(int64_t width, double epsilon);
  at::Tensor forward(const at::Tensor& input) { return layer_norm(input, weight, bias, epsilon_); }
  NormTerms terms() const {
    return {.weight = weight, .bias = bias, .epsilon = epsilon_, .centred = true};
  }

  at::Tensor weight;  // ones
  at::Tensor bias;    // zeros

 private:
  double epsilon_;
};
TORCH_MODULE(LayerNorm);

}  // namespace fullshard
