// SPDX-License-Identifier: Apache-2.0
// The one seam with the dispatcher: factory functions under DispatchKey::DeferredInit, which
// libtorch reserves and does not use.
#include "fullshard/nn/deferred.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "fullshard/base/error.h"

namespace fullshard {
namespace {

constexpr auto kKey = c10::DispatchKey::DeferredInit;

at::Tensor empty_on_meta(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device>,
                         std::optional<bool> /*pinned: there is nothing to pin*/,
                         std::optional<at::MemoryFormat> format) {
  const c10::impl::ExcludeDispatchKeyGuard excluded(kKey);
  return at::empty_symint(sizes, dtype, layout, at::Device(at::kMeta), false, format);
}

at::Tensor empty_strided_on_meta(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                                 std::optional<at::ScalarType> dtype,
                                 std::optional<at::Layout> layout, std::optional<at::Device>,
                                 std::optional<bool>) {
  const c10::impl::ExcludeDispatchKeyGuard excluded(kKey);
  return at::empty_strided_symint(sizes, strides, dtype, layout, at::Device(at::kMeta), false);
}

bool any_on_meta(const std::vector<at::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return tensor.defined() && tensor.is_meta(); });
}

}  // namespace

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, DeferredInit, library) {
  library.impl("empty.memory_format", empty_on_meta);
  library.impl("empty_strided", empty_strided_on_meta);
}

// Not in the header: whoever opens a scope links the kernels above with it.
DeferredScope::DeferredScope() : included_(kKey) {}
DeferredScope::~DeferredScope() = default;

RealScope::RealScope() : excluded_(kKey) {}
RealScope::~RealScope() = default;

bool is_deferred(const torch::nn::Module& module) {
  return any_on_meta(module.parameters()) || any_on_meta(module.buffers());
}

void materialise(at::Tensor& tensor, at::Device device) {
  if (!tensor.is_meta()) return;
  const RealScope real;
  materialise_as(tensor, at::empty_strided(tensor.sizes(), tensor.strides(),
                                           tensor.options().device(device).requires_grad(false)));
}

void materialise_as(at::Tensor& tensor, const at::Tensor& memory) {
  check(tensor.sizes() == memory.sizes() && tensor.scalar_type() == memory.scalar_type(),
        "materialise: a deferred {} tensor of {} elements was given memory of {} {} elements",
        c10::toString(tensor.scalar_type()), tensor.numel(), memory.numel(),
        c10::toString(memory.scalar_type()));
  // set_data refuses to go from meta to a device; this is what it does otherwise.
  tensor.unsafeGetTensorImpl()->shallow_copy_from(memory.getIntrusivePtr());
}

}  // namespace fullshard
