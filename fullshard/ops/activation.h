// SPDX-License-Identifier: Apache-2.0
// Pointwise functions between the two products of a feed-forward block, each in one pass forward
// and one backward, keeping only their inputs.
#pragma once

#include <ATen/core/Tensor.h>

namespace fullshard {

enum class Gelu { exact, tanh };  // erf, or the approximation that GPT-2 calls gelu_new

at::Tensor gelu(const at::Tensor& input, Gelu kind);
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);            // silu(gate) * up
at::Tensor geglu(const at::Tensor& gate, const at::Tensor& up, Gelu kind);  // gelu(gate) * up

// Every function that a feed-forward block may ask for.
enum class Activation { gelu, gelu_tanh, relu, silu };

at::Tensor activate(const at::Tensor& input, Activation kind);
at::Tensor gated(const at::Tensor& gate, const at::Tensor& up, Activation kind);  // kind(gate) * up

}  // namespace fullshard
