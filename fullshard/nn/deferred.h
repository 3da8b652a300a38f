// SPDX-License-Identifier: Apache-2.0
// Building a module without its memory: parameters and buffers have shapes and dtypes only, until
// they are materialised in place.
//
//   auto model = fullshard::deferred<Model>(config);           // a holder
//   auto model = fullshard::build_deferred([&] { return make_model(config); });
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/nn/module.h>

#include <utility>

namespace fullshard {

// While it lives, tensors that this thread creates by at::empty, at::empty_strided and what is
// built on them (zeros, ones, full, randn, arange, …) are on the meta device; so plain torch::nn
// modules are built without memory, and filling them takes no random numbers. A constructor that
// reads values back (item, at::tensor of an array) fails there with torch's own error.
class DeferredScope {
 public:
  DeferredScope();
  ~DeferredScope();
  DeferredScope(const DeferredScope&) = delete;
  DeferredScope& operator=(const DeferredScope&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard included_;
};

// Inside a DeferredScope: tensors are real again. For what is small and cannot be read from a file,
// as a table of positions that a constructor computes.
class RealScope {
 public:
  RealScope();
  ~RealScope();
  RealScope(const RealScope&) = delete;
  RealScope& operator=(const RealScope&) = delete;

 private:
  c10::impl::ExcludeDispatchKeyGuard excluded_;
};

// What `make` returns, made in a DeferredScope.
template <class Make>
auto build_deferred(Make&& make) {
  const DeferredScope scope;
  return std::forward<Make>(make)();
}

// deferred<Model>(config): the holder of a module built in such a scope. Its buffers are deferred
// too and have no values then; those that must have theirs are built in a RealScope.
template <class Holder, class... Arguments>
Holder deferred(Arguments&&... arguments) {
  const DeferredScope scope;
  return Holder(std::forward<Arguments>(arguments)...);
}

bool is_deferred(const torch::nn::Module& module);  // any parameter or buffer is
// Gives a tensor memory in place: every handle to it sees it. Values are undefined. A tensor that
// is not deferred is left alone.
void materialise(at::Tensor& tensor, at::Device device = at::kCPU);
// The same with the memory, and so the values, of another tensor of its shape and dtype.
void materialise_as(at::Tensor& tensor, const at::Tensor& memory);

}  // namespace fullshard
