// SPDX-License-Identifier: Apache-2.0
// What happens when a parameter's gradient is ready, and where an operator may put it instead.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>

#include <functional>
#include <optional>

namespace fullshard::nn {

// Where an operator puts a weight gradient instead of returning it: it overwrites the target, or
// adds to it, and returns an undefined gradient. The hook fires all the same.
struct GradientSink {
  at::Tensor target = {};  // of the parameter's shape; undefined: there is no sink, return it
  bool accumulate = false;
};
using OpenSink = std::function<GradientSink()>;
// Takes a whole gradient over, memory and all; false: it would rather be written into.
using TakeGradient = std::function<bool(const at::Tensor& gradient)>;

// Sits on the parameter itself and dies with it; one per parameter. It fires once per backward that
// reaches the parameter, also when the operator wrote into the sink and returned no gradient:
// parameter.grad() is then undefined. Called on the thread that runs the backward.
class GradientHook : public torch::autograd::PostAccumulateGradHook {
 public:
  using Function = std::function<void(const at::Tensor& parameter)>;

  void operator()(const at::Tensor& parameter) override;

  Function function;
  std::optional<unsigned> arrival;  // the tensor's hook that calls `arriving`
  OpenSink open_sink;
  TakeGradient take_gradient;
};

// `parameter` is a leaf that requires gradients. `arriving` is called before autograd adds to
// parameter.grad(), which may still be changed there. A second call replaces both functions and
// keeps the sink. Not to be called, nor cleared, from inside the functions.
void set_gradient_hook(const at::Tensor& parameter, GradientHook::Function function,
                       std::function<void()> arriving = {});
void clear_gradient_hook(const at::Tensor& parameter);
bool has_gradient_hook(const at::Tensor& parameter);  // any tensor may be asked

// `open` is asked in backward, once per gradient that an operator is about to write; an empty one
// takes the sink away.
void set_gradient_sink(const at::Tensor& parameter, OpenSink open, TakeGradient take = {});

// Any tensor may be asked. Whoever gets a target must fill it.
GradientSink open_gradient_sink(const at::Tensor& parameter);
// True: the parameter's sink keeps `gradient` itself, which nobody else may touch from now on.
bool give_gradient(const at::Tensor& parameter, const at::Tensor& gradient);

}  // namespace fullshard::nn
