// SPDX-License-Identifier: Apache-2.0
// Operators of libtorch on tensors of the stand-in device: the CPU computes them over the same
// memory, at once, behind what their stream has been given. Copies that need not be waited for are
// work of the stream.
#include "tests/stand_in/device/operators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "fullshard/base/error.h"
#include "tests/stand_in/device/device_memory.h"
#include "tests/stand_in/device/device_streams.h"

namespace fullshard::stand_in {

at::Tensor inside(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  const auto options = tensor.options().device(at::kCPU).requires_grad(false);
  if (tensor.numel() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  void* const address = DeviceMemory::instance().for_device(tensor.const_data_ptr());
  return at::from_blob(address, tensor.sizes(), tensor.strides(), options);
}

namespace {

at::Tensor empty_on_device(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> dtype,
                           std::optional<at::Layout>, std::optional<at::Device>,
                           std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(
      c10::asIntArrayRefSlow(sizes, __FILE__, __LINE__), &DeviceMemory::instance(),
      c10::DispatchKeySet(c10::DispatchKey::CUDA), dtype.value_or(at::kFloat), format);
}

at::Tensor empty_strided_on_device(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                                   std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                                   std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      c10::asIntArrayRefSlow(sizes, __FILE__, __LINE__),
      c10::asIntArrayRefSlow(strides, __FILE__, __LINE__), &DeviceMemory::instance(),
      c10::DispatchKeySet(c10::DispatchKey::CUDA), dtype.value_or(at::kFloat));
}

bool lies_on_host_unpinned(const at::Tensor& tensor) {
  return tensor.is_cpu() && !tensor.is_pinned();
}

// As CUDA: what is not pinned is waited for, whatever was asked.
at::Tensor& copy_on_device(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset);
  auto& streams = Streams::instance();
  const int64_t stream = Streams::current();
  const bool crosses = self.is_cpu() || source.is_cpu();
  const bool waits =
      crosses && (!non_blocking || lies_on_host_unpinned(self) || lies_on_host_unpinned(source));
  const auto target = inside(self), from = inside(source);
  if (self.numel() == 0) return self;
  // A host tensor that a copy reads is held, as pinned memory of libtorch's cache is.
  const auto work = [target, from] { target.copy_(from); };
  if (waits) {
    streams.finish(stream, "a copy that waits");
    work();
  } else {
    streams.submit(stream, work);
  }
  return self;
}

at::Tensor copy_to(const at::Tensor& self, const at::Tensor& target, bool non_blocking) {
  auto written = target;
  copy_on_device(written, self, non_blocking);
  return target;
}

at::Scalar scalar_on_device(const at::Tensor& self) {
  Streams::instance().finish(Streams::current(), "reading a number");
  return inside(self).item();
}

const at::Tensor& resize_on_device(const at::Tensor& self, c10::SymIntArrayRef wanted,
                                   std::optional<at::MemoryFormat>) {
  const auto sizes = c10::asIntArrayRefSlow(wanted, __FILE__, __LINE__);
  if (self.sizes() == sizes) return self;
  auto made = at::empty(sizes, self.options());
  const int64_t kept = std::min(made.numel(), self.numel());
  if (kept > 0) {
    made.view(-1).narrow(0, 0, kept).copy_(self.contiguous().view(-1).narrow(0, 0, kept));
  }
  auto* const impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(made.storage());
  impl->set_sizes_contiguous(sizes);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage, c10::SymInt offset,
                        c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides) {
  auto* const impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset.expect_int());
  impl->set_sizes_and_strides(c10::asIntArrayRefSlow(sizes, __FILE__, __LINE__),
                              c10::asIntArrayRefSlow(strides, __FILE__, __LINE__));
  return self;
}

void record_stream_on_device(at::Tensor& self, at::Stream stream) {
  DeviceMemory::instance().recordStream(self.storage().data_ptr(), stream);
}

bool only_changes_the_view(const c10::OperatorHandle& op) {
  if (op.hasTag(at::Tag::inplace_view)) return true;
  const auto& returns = op.schema().returns();
  return !returns.empty() && returns[0].alias_info() != nullptr &&
         !returns[0].alias_info()->isWrite();
}

// The arguments of a call, with tensors of the device in the CPU's eyes.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack) : op_(op) {
    const size_t count = op.schema().arguments().size();
    for (size_t i = stack.size() - count; i < stack.size(); ++i) given_.push_back(stack[i]);
    for (const auto& value : given_) taken_.push_back(taken(value));
  }

  // What the CPU is asked, which holds nothing of what was given.
  struct Call {
    const c10::OperatorHandle& op;
    torch::jit::Stack arguments;

    torch::jit::Stack make() const {
      const at::NoGradGuard no_grad;
      auto stack = arguments;
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
      return stack;
    }
  };
  Call call() const { return {op_, taken_}; }
  // For the sizes of results alone: what would be looked up may not be there yet.
  Call call_without_values() const {
    auto arguments = taken_;
    for (size_t i = 0; i < arguments.size(); ++i) {
      auto& value = arguments[i];
      if (is_written(i) || !value.isTensor() || !value.toTensor().defined()) continue;
      const auto tensor = value.toTensor();
      if (at::isIntegralType(tensor.scalar_type(), false)) value = at::zeros_like(tensor);
    }
    return {op_, arguments};
  }

  // Nothing is made, and what is written has its size already.
  bool only_writes() const {
    const auto& returns = op_.schema().returns();
    const bool makes_nothing = std::ranges::all_of(returns, [](const c10::Argument& result) {
      return result.alias_info() != nullptr && result.alias_info()->isWrite();
    });
    const auto results = written();
    return makes_nothing && std::ranges::none_of(results, [](const c10::IValue& value) {
             return value.isTensor() && value.toTensor().defined() && value.toTensor().numel() == 0;
           });
  }

  // The tensor that was given where the CPU saw this one.
  const at::Tensor* given_for(const at::Tensor& seen) const {
    for (const auto& [own, cpu] : pairs_) {
      if (cpu.is_same(seen)) return &own;
    }
    return nullptr;
  }

  // For calls that are not made: results are the arguments that would be written.
  torch::jit::Stack written() const {
    torch::jit::Stack results;
    for (size_t i = 0; i < given_.size(); ++i) {
      if (results.size() == op_.schema().returns().size()) break;
      if (is_written(i)) results.push_back(given_[i]);
    }
    return results;
  }

 private:
  bool is_written(size_t argument) const {
    const auto* alias = op_.schema().arguments()[argument].alias_info();
    return alias != nullptr && alias->isWrite();
  }

  at::Tensor taken(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cuda()) return tensor;
    pairs_.emplace_back(tensor, inside(tensor));
    return pairs_.back().second;
  }
  c10::IValue taken(const c10::IValue& value) {
    if (value.isTensor()) return taken(value.toTensor());
    if (value.isDevice()) return c10::IValue(c10::Device(c10::kCPU));
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(taken(tensor));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList()) {
        list.push_back(tensor ? std::optional(taken(*tensor)) : std::nullopt);
      }
      return list;
    }
    return value;
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack given_, taken_;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
};

at::Tensor on_device(const at::Tensor& made) {
  auto result = at::empty_strided(made.sizes(), made.strides(), made.options().device(at::kCUDA));
  if (made.numel() > 0) inside(result).copy_(made);
  return result;
}

// Results of a call, back on the device; where there are some already they are written again.
c10::IValue result_of(const c10::IValue& made, const Arguments& arguments) {
  const auto back = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    const auto* given = arguments.given_for(tensor);
    if (given == nullptr) return on_device(tensor);
    if (given->sizes() != tensor.sizes()) {  // an output that was resized
      resize_on_device(*given, c10::fromIntArrayRefSlow(tensor.sizes()), std::nullopt);
      inside(*given).copy_(tensor);
    }
    return *given;
  };
  if (made.isTensor()) return back(made.toTensor());
  if (made.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : made.toTensorVector()) list.push_back(back(tensor));
    return list;
  }
  return made;
}

void copy_results(const torch::jit::Stack& from, const torch::jit::Stack& to) {
  for (size_t i = 0; i < from.size(); ++i) {
    if (!from[i].isTensor() || !from[i].toTensor().defined()) continue;
    const auto target = inside(to[i].toTensor());
    const auto source = from[i].toTensor();
    if (target.numel() > 0 && target.const_data_ptr() != source.const_data_ptr()) {
      target.copy_(source);
    }
  }
}

void run_on_device(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  if (only_changes_the_view(op)) {
    return op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  }
  auto& streams = Streams::instance();
  const std::lock_guard lock(streams.mutex());
  const int64_t stream = Streams::current();
  const Arguments arguments(op, *stack);
  torch::jit::drop(*stack, schema.arguments().size());
  const auto results_of = [&](const torch::jit::Stack& made) {
    torch::jit::Stack results;
    for (const auto& value : made) results.push_back(result_of(value, arguments));
    return results;
  };
  torch::jit::Stack results;
  if (!streams.is_capturing()) {
    streams.finish(stream, "an operator");
    results = results_of(arguments.call().make());
  } else {
    // Shapes are needed now, values when the graph runs; and nothing is drawn yet.
    auto generator = at::detail::getDefaultCPUGenerator();
    const auto state = generator.get_state();
    results = arguments.only_writes() ? arguments.written()
                                      : results_of(arguments.call_without_values().make());
    generator.set_state(state);
    torch::jit::Stack places;
    for (const auto& value : results) {
      places.push_back(value.isTensor() ? c10::IValue(value.toTensor().detach()) : value);
    }
    streams.submit(stream,
                   [call = arguments.call(), places] { copy_results(call.make(), places); });
  }
  for (auto& result : results) stack->push_back(std::move(result));
}

}  // namespace

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_device>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", empty_on_device);
  library.impl("empty_strided", empty_strided_on_device);
  library.impl("copy_", copy_on_device);
  library.impl("_copy_from", copy_to);
  library.impl("_copy_from_and_resize", [](const at::Tensor& self, const at::Tensor& target) {
    return copy_to(self, target, false);
  });
  library.impl("_local_scalar_dense", scalar_on_device);
  library.impl("resize_", resize_on_device);
  library.impl("set_.source_Storage_storage_offset", set_storage);
  library.impl("record_stream", record_stream_on_device);
}

}  // namespace fullshard::stand_in
