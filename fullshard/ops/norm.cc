// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "fullshard/ops/absent_tensor.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/kernels/kernel_dispatch.h"
#include "fullshard/ops/kernels/norm_kernels.h"
#include "fullshard/ops/wide_gradient.h"
#include "fullshard/tensor/parallel.h"

namespace fullshard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The weight's gradient is summed in blocks of rows whose number depends on the shape only: the
// bits do not depend on the number of threads.
constexpr int64_t kRowsPerBlock = 64;

struct NormGradients {
  at::Tensor input, weight;
};

NormGradients rms_norm_backward(const at::Tensor& gradient, const at::Tensor& input,
                                const at::Tensor& weight, const at::Tensor& inverse) {
  const int64_t width = input.size(-1), num_rows = inverse.numel();
  const int64_t num_blocks = (num_rows + kRowsPerBlock - 1) / kRowsPerBlock;
  auto input_gradient = at::empty(input.sizes(), input.options());
  const auto sums = at::zeros({num_blocks, width}, at::kFloat);
  ops::with_stored_type(input, [&]<class Stored>(Stored*) {
    tensor::parallel_ranges(num_blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kRowsPerBlock;
        const int64_t at = first * width;
        ops::rms_norm_gradient_rows(
            ops::mutable_elements<Stored>(input_gradient) + at,
            ops::mutable_elements<float>(sums) + block * width,
            ops::elements<Stored>(gradient) + at, ops::elements<Stored>(input) + at,
            ops::elements<Stored>(weight), ops::elements<float>(inverse) + first,
            std::min(kRowsPerBlock, num_rows - first), width);
      }
    });
  });
  return {input_gradient, sums.sum(0).to(weight.scalar_type())};
}

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given,
                            const at::Tensor& weight, double epsilon) {
    const auto input = given.contiguous();
    const auto own_weight = weight.contiguous();
    const int64_t width = input.size(-1), num_rows = input.numel() / width;
    auto output = at::empty(input.sizes(), input.options());
    const auto inverse = at::empty({num_rows}, input.options().dtype(at::kFloat));
    ops::with_stored_type(input, [&]<class Stored>(Stored*) {
      tensor::parallel_ranges(
          num_rows, ops::rows_per_thread(width), [&](int64_t begin, int64_t end) {
            ops::rms_norm_rows(ops::mutable_elements<Stored>(output) + begin * width,
                               ops::mutable_elements<float>(inverse) + begin,
                               ops::elements<Stored>(input) + begin * width,
                               ops::elements<Stored>(own_weight), end - begin, width,
                               static_cast<float>(epsilon));
          });
    });
    context->save_for_backward({input, own_weight, inverse});
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    ops::refuse_second_derivative("rms_norm");
    const auto saved = context->get_saved_variables();
    const auto own = rms_norm_backward(gradients[0].contiguous(), saved[0], saved[1], saved[2]);
    return {own.input, own.weight, {}};
  }
};

// Both norms on a GPU. The gradients of weight and bias go straight into their sinks.
struct DeviceNormFunction : torch::autograd::Function<DeviceNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given,
                            const at::Tensor& weight, const at::Tensor& given_bias, double epsilon,
                            bool centred) {
    const auto input = given.contiguous();
    const auto bias = ops::undefined_if_empty(given_bias);
    const NormTerms terms{weight, bias, epsilon, centred};
    auto output = at::empty(input.sizes(), input.options());
    const auto statistics = ops::device_norm(output, input, terms);
    context->save_for_backward({input, weight, statistics.mean, statistics.inverse});
    context->saved_data["weight"] = weight;
    context->saved_data["bias"] = bias;
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    ops::refuse_second_derivative("norm");
    const auto saved = context->get_saved_variables();
    const auto& input = saved[0];
    ops::WideGradient weight(context->needs_input_grad(1) ? context->saved_data["weight"].toTensor()
                                                          : at::Tensor());
    ops::WideGradient bias(context->needs_input_grad(2) ? context->saved_data["bias"].toTensor()
                                                        : at::Tensor());
    auto input_gradient = at::empty(input.sizes(), input.options());
    ops::device_norm_gradient(
        {input_gradient, weight.target(), bias.target()}, gradients[0].contiguous(), {}, input,
        {.weight = saved[1], .centred = saved[2].defined()}, {saved[2], saved[3]});
    return {input_gradient, weight.finish(), bias.finish(), {}, {}};
  }
};

at::Tensor composed_rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon) {
  const auto wide = input.scalar_type() == at::kDouble ? input : input.to(at::kFloat);
  const auto inverse = (wide.square().mean(-1, /*keepdim=*/true) + epsilon).rsqrt();
  return weight * (wide * inverse).to(input.scalar_type());
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon) {
  check(weight.dim() == 1 && input.dim() > 0 && input.size(-1) == weight.size(0),
        "rms_norm: the input's last dimension is {}, the weight has {} elements; they must agree",
        input.dim() > 0 ? input.size(-1) : 0, weight.numel());
  if (weight.numel() > 0 && weight.is_contiguous() && ops::has_cuda_kernel({input, weight})) {
    return DeviceNormFunction::apply(input, weight, ops::empty_if_absent({}, input), epsilon,
                                     false);
  }
  if (!ops::has_cpu_kernel({input, weight}) || weight.numel() == 0) {
    return composed_rms_norm(input, weight, epsilon);
  }
  return RmsNormFunction::apply(input, weight, epsilon);
}

at::Tensor layer_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                      double epsilon) {
  const bool is_plain = weight.defined() && weight.dim() == 1 && weight.numel() > 0 &&
                        input.dim() > 0 && input.size(-1) == weight.numel() &&
                        weight.is_contiguous() && (!bias.defined() || bias.is_contiguous());
  if (is_plain && ops::has_cuda_kernel({input, weight, bias})) {
    return DeviceNormFunction::apply(input, weight, ops::empty_if_absent(bias, input), epsilon,
                                     true);
  }
  return at::layer_norm(input, weight.sizes(), weight, bias, epsilon);
}

at::Tensor apply_norm(const at::Tensor& input, const NormTerms& terms) {
  return terms.centred ? layer_norm(input, terms.weight, terms.bias, terms.epsilon)
                       : rms_norm(input, terms.weight, terms.epsilon);
}

RmsNormImpl::RmsNormImpl(int64_t width, double epsilon)
    : weight(register_parameter("weight", at::ones({width}))), epsilon_(epsilon) {}

LayerNormImpl::LayerNormImpl(int64_t width, double epsilon)
    : weight(register_parameter("weight", at::ones({width}))),
      bias(register_parameter("bias", at::zeros({width}))),
      epsilon_(epsilon) {}

}  // namespace fullshard
