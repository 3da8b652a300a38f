// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/gradient_hook.h"

#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::nn {
namespace {

namespace impl = torch::autograd::impl;

// The hook that libtorch keeps with the parameter, ours or not.
torch::autograd::PostAccumulateGradHook* installed_hook(const at::Tensor& parameter) {
  if (!parameter.defined() || impl::get_autograd_meta(parameter) == nullptr) return nullptr;
  return impl::post_acc_grad_hooks(parameter).get();
}

GradientHook* find_hook(const at::Tensor& parameter) {
  return dynamic_cast<GradientHook*>(installed_hook(parameter));
}

GradientHook& find_or_install_hook(const at::Tensor& parameter) {
  if (GradientHook* hook = find_hook(parameter)) return *hook;
  check(parameter.defined() && parameter.requires_grad() && parameter.is_leaf(),
        "gradient hook: the tensor is not a leaf that requires gradients; only parameters can have "
        "one");
  check(
      installed_hook(parameter) == nullptr,
      "gradient hook: the parameter already has a post-accumulate hook of someone else; remove it "
      "before the model is sharded");
  auto hook = std::make_unique<GradientHook>();
  GradientHook& installed = *hook;
  impl::set_post_acc_grad_hooks(parameter, std::move(hook));
  return installed;
}

void forget_arrival(const at::Tensor& parameter, GradientHook& hook) {
  if (hook.arrival) parameter.remove_hook(*hook.arrival);
  hook.arrival.reset();
}

}  // namespace

void GradientHook::operator()(const at::Tensor& parameter) {
  if (function) function(parameter);
}

void set_gradient_hook(const at::Tensor& parameter, GradientHook::Function function,
                       std::function<void()> arriving) {
  GradientHook& hook = find_or_install_hook(parameter);
  hook.function = std::move(function);
  forget_arrival(parameter, hook);
  if (!arriving) return;
  hook.arrival =
      parameter.register_hook([arriving = std::move(arriving)](const at::Tensor&) { arriving(); });
}

void clear_gradient_hook(const at::Tensor& parameter) {
  GradientHook* hook = find_hook(parameter);
  if (hook == nullptr) return;
  forget_arrival(parameter, *hook);
  impl::set_post_acc_grad_hooks(parameter, nullptr);
}

bool has_gradient_hook(const at::Tensor& parameter) { return find_hook(parameter) != nullptr; }

void set_gradient_sink(const at::Tensor& parameter, OpenSink open, TakeGradient take) {
  if (!open && find_hook(parameter) == nullptr) return;
  GradientHook& hook = find_or_install_hook(parameter);
  hook.open_sink = std::move(open);
  hook.take_gradient = std::move(take);
}

GradientSink open_gradient_sink(const at::Tensor& parameter) {
  const GradientHook* hook = find_hook(parameter);
  return hook == nullptr || !hook->open_sink ? GradientSink() : hook->open_sink();
}

bool give_gradient(const at::Tensor& parameter, const at::Tensor& gradient) {
  const GradientHook* hook = find_hook(parameter);
  return hook != nullptr && hook->take_gradient && hook->take_gradient(gradient);
}

}  // namespace fullshard::nn
