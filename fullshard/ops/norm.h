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

class RmsNormImpl : public torch::nn::Module {
 public:
  RmsNormImpl(int64_t width, double epsilon);
  at::Tensor forward(const at::Tensor& input) { return rms_norm(input, weight, epsilon_); }

  at::Tensor weight;  // ones

 private:
  double epsilon_;
};
TORCH_MODULE(RmsNorm);

class LayerNormImpl : public torch::nn::Module {
 public:
  LayerNormImpl(int64_t width, double epsilon);
  at::Tensor forward(const at::Tensor& input) { return layer_norm(input, weight, bias, epsilon_); }

  at::Tensor weight;  // ones
  at::Tensor bias;    // zeros

 private:
  double epsilon_;
};
TORCH_MODULE(LayerNorm);

}  // namespace fullshard
