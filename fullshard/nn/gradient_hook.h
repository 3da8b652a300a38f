// What happens when a parameter's gradient is ready, and where an operator may put it instead.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>

#include <functional>

namespace fullshard {

// Sits on the parameter itself and dies with it; one per parameter. It fires once per backward that
// reaches the parameter, also when the operator wrote into the sink and returned no gradient:
// parameter.grad() is then undefined. Called on the thread that runs the backward.
class GradientHook : public torch::autograd::PostAccumulateGradHook {
 public:
  using Function = std::function<void(const at::Tensor& parameter)>;

  void operator()(const at::Tensor& parameter) override;

  Function function;
  at::Tensor sink;
};

// `parameter` is a leaf that requires gradients. A second call replaces the function and keeps the
// sink. Not to be called, nor cleared, from inside the function.
void set_gradient_hook(const at::Tensor& parameter, GradientHook::Function function);
void clear_gradient_hook(const at::Tensor& parameter);

// A sink has the parameter's shape, in any floating dtype. An operator that finds one adds its
// weight gradient to it and returns an undefined gradient. An undefined tensor takes it away.
void set_gradient_sink(const at::Tensor& parameter, const at::Tensor& sink);

// Undefined when there is none; any tensor may be asked.
at::Tensor gradient_sink(const at::Tensor& parameter);

}  // namespace fullshard
