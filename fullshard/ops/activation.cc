// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/activation.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "fullshard/ops/kernels/activation_kernels.h"
#include "fullshard/ops/kernels/kernel_dispatch.h"
#include "fullshard/tensor/parallel.h"

namespace fullshard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor packed_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options());
}

struct ActivationFunction : torch::autograd::Function<ActivationFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given, int64_t kind) {
    const auto input = given.contiguous();
    auto output = packed_like(input);
    ops::with_stored_type(input, [&]<class Stored>(Stored*) {
      tensor::parallel_ranges(input.numel(), ops::kElementsPerThread,
                              [&](int64_t begin, int64_t end) {
                                ops::activate(ops::KernelActivation(kind),
                                              ops::mutable_elements<Stored>(output) + begin,
                                              ops::elements<Stored>(input) + begin, end - begin);
                              });
    });
    context->save_for_backward({input});
    context->saved_data["kind"] = kind;
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    ops::refuse_second_derivative("gelu");
    const auto input = context->get_saved_variables()[0];
    const auto gradient = gradients[0].contiguous();
    const auto kind = ops::KernelActivation(context->saved_data["kind"].toInt());
    auto input_gradient = packed_like(input);
    ops::with_stored_type(input, [&]<class Stored>(Stored*) {
      tensor::parallel_ranges(
          input.numel(), ops::kElementsPerThread, [&](int64_t begin, int64_t end) {
            ops::activate_gradient(kind, ops::mutable_elements<Stored>(input_gradient) + begin,
                                   ops::elements<Stored>(gradient) + begin,
                                   ops::elements<Stored>(input) + begin, end - begin);
          });
    });
    return {input_gradient, {}};
  }
};

struct GatedFunction : torch::autograd::Function<GatedFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given_gate,
                            const at::Tensor& given_up, int64_t kind) {
    const auto gate = given_gate.contiguous(), up = given_up.contiguous();
    auto output = packed_like(gate);
    ops::with_stored_type(gate, [&]<class Stored>(Stored*) {
      tensor::parallel_ranges(gate.numel(), ops::kElementsPerThread,
                              [&](int64_t begin, int64_t end) {
                                ops::activate_gated(ops::KernelActivation(kind),
                                                    ops::mutable_elements<Stored>(output) + begin,
                                                    ops::elements<Stored>(gate) + begin,
                                                    ops::elements<Stored>(up) + begin, end - begin);
                              });
    });
    context->save_for_backward({gate, up});
    context->saved_data["kind"] = kind;
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    ops::refuse_second_derivative("swiglu and geglu");
    const auto saved = context->get_saved_variables();
    const auto gradient = gradients[0].contiguous();
    const auto kind = ops::KernelActivation(context->saved_data["kind"].toInt());
    auto to_gate = packed_like(saved[0]), to_up = packed_like(saved[1]);
    ops::with_stored_type(gradient, [&]<class Stored>(Stored*) {
      tensor::parallel_ranges(
          gradient.numel(), ops::kElementsPerThread, [&](int64_t begin, int64_t end) {
            ops::activate_gated_gradient(kind, ops::mutable_elements<Stored>(to_gate) + begin,
                                         ops::mutable_elements<Stored>(to_up) + begin,
                                         ops::elements<Stored>(gradient) + begin,
                                         ops::elements<Stored>(saved[0]) + begin,
                                         ops::elements<Stored>(saved[1]) + begin, end - begin);
          });
    });
    return {to_gate, to_up, {}};
  }
};

at::Tensor gated_by_kernel(const at::Tensor& gate, const at::Tensor& up,
                           ops::KernelActivation kind) {
  return GatedFunction::apply(gate, up, static_cast<int64_t>(kind));
}

bool has_gated_kernel(const char* what, const at::Tensor& gate, const at::Tensor& up) {
  check(gate.sizes() == up.sizes(), "{}: gate has {} elements, up has {}; their shapes must agree",
        what, gate.numel(), up.numel());
  return ops::has_cpu_kernel({gate, up});
}

const char* torchs_name(Gelu kind) { return kind == Gelu::tanh ? "tanh" : "none"; }

}  // namespace

at::Tensor gelu(const at::Tensor& input, Gelu kind) {
  if (kind == Gelu::exact || !ops::has_cpu_kernel(input)) return at::gelu(input, torchs_name(kind));
  return ActivationFunction::apply(input, static_cast<int64_t>(ops::KernelActivation::tanh_gelu));
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  if (!has_gated_kernel("swiglu", gate, up)) return at::silu(gate) * up;
  return gated_by_kernel(gate, up, ops::KernelActivation::silu);
}

at::Tensor geglu(const at::Tensor& gate, const at::Tensor& up, Gelu kind) {
  const bool has_kernel = has_gated_kernel("geglu", gate, up);
  if (kind == Gelu::exact || !has_kernel) return at::gelu(gate, torchs_name(kind)) * up;
  return gated_by_kernel(gate, up, ops::KernelActivation::tanh_gelu);
}

at::Tensor activate(const at::Tensor& input, Activation kind) {
  switch (kind) {
    case Activation::gelu:
      return gelu(input, Gelu::exact);
    case Activation::gelu_tanh:
      return gelu(input, Gelu::tanh);
    case Activation::relu:
      return at::relu(input);
    case Activation::silu:
      break;
  }
  return at::silu(input);
}

at::Tensor gated(const at::Tensor& gate, const at::Tensor& up, Activation kind) {
  switch (kind) {
    case Activation::gelu:
      return geglu(gate, up, Gelu::exact);
    case Activation::gelu_tanh:
      return geglu(gate, up, Gelu::tanh);
    case Activation::relu:
      return at::relu(gate) * up;
    case Activation::silu:
      break;
  }
  return swiglu(gate, up);
}

}  // namespace fullshard
