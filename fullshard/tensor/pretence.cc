// SPDX-License-Identifier: Apache-2.0
// The one seam with the dispatcher for plans. Factory functions under one key, which comes before
// all others, give addresses instead of memory. All other operators come under a second key, below
// autograd: compositions run as they are, views are made, and of what is left only the results are
// allocated.
#include "fullshard/tensor/pretence.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/tensor/address_space.h"
#include "fullshard/tensor/operator_cost.h"
#include "fullshard/tensor/operator_watch.h"
#include "fullshard/tensor/pretended_results.h"

namespace fullshard::tensor {
namespace {

// Two that libtorch leaves to others; the second counts as a backend, so that the dispatcher takes
// operators apart for it as far as it can.
constexpr auto kFactoryKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
constexpr auto kOperatorKey = c10::DispatchKey::CustomRNGKeyId;
const auto kSessionSlot = c10::DebugInfoKind::TEST_INFO;

struct Session : c10::DebugInfoBase {
  std::shared_ptr<AddressSpace> space = std::make_shared<AddressSpace>();
};

AddressSpace& present_space() {
  auto* session = c10::ThreadLocalDebugInfo::get(kSessionSlot);
  check(session != nullptr, "a thread pretends to compute outside of any scope for that");
  return *static_cast<Session*>(session)->space;
}

// While it lives, operators compute again.
class ComputingScope {
 private:
  c10::impl::ExcludeDispatchKeyGuard factories_{kFactoryKey}, operators_{kOperatorKey};
};

// Positions, masks and labels: code asks for their values. Nobody does where every query has a
// number for every key, of which long sequences have more than a host has bytes.
constexpr int64_t kMostReal = int64_t{1} << 22;

bool stays_real(at::ScalarType dtype, at::Device device, int64_t numel) {
  if (device.is_meta()) return true;
  const bool is_asked = dtype == at::kLong || dtype == at::kInt || dtype == at::kBool;
  return device.is_cpu() && is_asked && numel <= kMostReal;
}

at::Device device_or_cpu(const std::optional<at::Device>& device) {
  auto chosen = device.value_or(at::kCPU);
  if (chosen.is_cuda() && !chosen.has_index()) chosen.set_index(0);
  return chosen;
}

c10::DispatchKeySet keys_of(at::Device device) {
  check(device.is_cpu() || device.is_cuda(), "plans are made for CPUs and GPUs, not for {}",
        device.str());
  return c10::DispatchKeySet(device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA);
}

// What comes of numbers that are not there must not be garbage.
at::Tensor known(at::Tensor tensor) { return tensor.is_meta() ? tensor : tensor.zero_(); }

c10::Allocator& allocator_of(at::ScalarType dtype, at::Device device) {
  const bool is_bytes = dtype == at::kByte;
  return present_space().allocator(device,
                                   is_bytes ? AllocationKind::bytes : AllocationKind::tensor);
}

at::Tensor pretended_empty(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> dtype,
                           std::optional<at::Layout> layout, std::optional<at::Device> device,
                           std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  const auto type = dtype.value_or(at::typeMetaToScalarType(at::get_default_dtype()));
  const auto place = device_or_cpu(device);
  if (stays_real(type, place, c10::multiply_integers(sizes).expect_int())) {
    const ComputingScope computing;
    return known(at::empty_symint(sizes, dtype, layout, device, pinned, format));
  }
  return at::detail::empty_generic(c10::asIntArrayRefSlow(sizes, __FILE__, __LINE__),
                                   &allocator_of(type, place), keys_of(place), type, format);
}

at::Tensor pretended_empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                                   std::optional<at::ScalarType> dtype,
                                   std::optional<at::Layout> layout,
                                   std::optional<at::Device> device, std::optional<bool> pinned) {
  const auto type = dtype.value_or(at::typeMetaToScalarType(at::get_default_dtype()));
  const auto place = device_or_cpu(device);
  if (stays_real(type, place, c10::multiply_integers(sizes).expect_int())) {
    const ComputingScope computing;
    return known(at::empty_strided_symint(sizes, strides, dtype, layout, device, pinned));
  }
  return at::detail::empty_strided_generic(c10::asIntArrayRefSlow(sizes, __FILE__, __LINE__),
                                           c10::asIntArrayRefSlow(strides, __FILE__, __LINE__),
                                           &allocator_of(type, place), keys_of(place), type);
}

at::Tensor pretended_arange_step(const at::Scalar& start, const at::Scalar& end,
                                 const at::Scalar& step, std::optional<at::ScalarType> dtype,
                                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                                 std::optional<bool> pinned) {
  const bool is_integer = start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true);
  const auto usual = is_integer ? at::kLong : at::typeMetaToScalarType(at::get_default_dtype());
  const auto type = dtype.value_or(usual);
  const double span = end.toDouble() - start.toDouble();
  const auto count = static_cast<int64_t>(std::ceil(span / step.toDouble()));
  if (stays_real(type, device_or_cpu(device), count)) {
    const ComputingScope computing;
    return at::arange(start, end, step, dtype, layout, device, pinned);
  }
  return at::empty({count}, at::TensorOptions().dtype(type).device(device_or_cpu(device)));
}

at::Tensor pretended_arange_start(const at::Scalar& start, const at::Scalar& end,
                                  std::optional<at::ScalarType> dtype,
                                  std::optional<at::Layout> layout,
                                  std::optional<at::Device> device, std::optional<bool> pinned) {
  return pretended_arange_step(start, end, 1, dtype, layout, device, pinned);
}

at::Tensor pretended_arange(const at::Scalar& end, std::optional<at::ScalarType> dtype,
                            std::optional<at::Layout> layout, std::optional<at::Device> device,
                            std::optional<bool> pinned) {
  return pretended_arange_step(0, end, 1, dtype, layout, device, pinned);
}

bool is_without_memory(const at::Tensor& tensor, const AddressSpace& space) {
  if (!tensor.defined() || !tensor.has_storage()) return false;
  if (tensor.is_cuda()) return true;
  auto* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  return space.owns(storage->_mutable_data_ptr_no_checks().get());
}

template <class Act>
void for_each_tensor(const c10::IValue& value, const Act& act) {
  if (value.isTensor()) {
    act(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) act(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) for_each_tensor(item, act);
  }
}

bool any_argument(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                  const std::function<bool(const at::Tensor&)>& is_so) {
  bool found = false;
  const size_t count = op.schema().arguments().size();
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    for_each_tensor(stack[i], [&](const at::Tensor& tensor) { found = found || is_so(tensor); });
  }
  return found;
}

// How many elements the arguments have together, each spread over the others.
int64_t spread_numel(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  std::vector<int64_t> sizes;  // the last one first
  const size_t count = op.schema().arguments().size();
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    for_each_tensor(stack[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      const auto dim = static_cast<size_t>(tensor.dim());
      if (sizes.size() < dim) sizes.resize(dim, 1);
      for (size_t d = 0; d < dim; ++d) {
        sizes[d] = std::max(sizes[d], tensor.sizes()[dim - 1 - d]);
      }
    });
  }
  return c10::multiply_integers(sizes);
}

void compute(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const ComputingScope computing;
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

// Views of any device: nothing but sizes and strides is touched.
bool only_changes_the_view(const c10::OperatorHandle& op) {
  if (op.hasTag(at::Tag::inplace_view)) return true;
  const auto& returns = op.schema().returns();
  return !returns.empty() && returns[0].alias_info() != nullptr &&
         !returns[0].alias_info()->isWrite();
}

bool returns_numbers(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    const auto kind = result.type()->kind();
    if (kind == c10::TypeKind::TensorType || kind == c10::TypeKind::ListType) return false;
  }
  return !schema.returns().empty();
}

bool writes_arguments(const c10::FunctionSchema& schema) {
  if (schema.returns().empty()) return true;
  const auto* alias = schema.returns()[0].alias_info();
  return alias != nullptr && alias->isWrite();
}

// The arguments that the results are.
void return_written(const c10::FunctionSchema& schema, torch::jit::Stack* stack) {
  const size_t count = schema.arguments().size();
  std::vector<c10::IValue> results;
  for (size_t i = 0; i < count; ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (results.size() == schema.returns().size()) break;
    if (alias != nullptr && alias->isWrite()) {
      results.push_back((*stack)[stack->size() - count + i]);
    }
  }
  torch::jit::drop(*stack, count);
  for (auto& result : results) stack->push_back(std::move(result));
}

std::vector<c10::IValue> arguments_of(const c10::OperatorHandle& op,
                                      const torch::jit::Stack& stack) {
  const auto count = static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  return {stack.end() - count, stack.end()};
}

std::optional<OperatorCall> watched_call(const c10::OperatorHandle& op,
                                         const torch::jit::Stack& stack) {
  if (!OperatorWatch::current()) return std::nullopt;
  return describe_operator(op, arguments_of(op, stack));
}

void note_results(std::optional<OperatorCall> call, const c10::FunctionSchema& schema,
                  const torch::jit::Stack& stack) {
  if (!call) return;
  for (size_t i = stack.size() - schema.returns().size(); i < stack.size(); ++i) {
    for_each_tensor(stack[i], [&](const at::Tensor& tensor) {
      if (tensor.defined() && !tensor.is_cpu()) call->bytes += touched_bytes(tensor);
    });
  }
  OperatorWatch::current()->ran(*call, present_stream());
}

void pretend(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto& space = present_space();
  if (any_argument(op, *stack, [](const at::Tensor& t) { return t.defined() && t.is_meta(); })) {
    const ComputingScope computing;
    return op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), stack);
  }
  const bool is_pretended = any_argument(
      op, *stack, [&](const at::Tensor& tensor) { return is_without_memory(tensor, space); });
  const bool is_large = spread_numel(op, *stack) > kMostReal && !only_changes_the_view(op);
  if (returns_numbers(schema) || (!is_pretended && !is_large)) return compute(op, stack);
  if (only_changes_the_view(op)) {
    return op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  }
  auto call = watched_call(op, *stack);
  if (writes_arguments(schema)) {
    if (call) OperatorWatch::current()->ran(*call, present_stream());
    take_room_for_work(op, arguments_of(op, *stack));
    return return_written(schema, stack);
  }
  make_results(op, stack, {kFactoryKey, kOperatorKey});
  note_results(std::move(call), schema, *stack);
}

// What streams and autograd ask of a device that is not there. Events are numbers, told to a watch.
struct PretendedGpu : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  static c10::Device only() { return {c10::kCUDA, 0}; }
  static c10::Stream numbered(int64_t stream) {
    return c10::Stream(c10::Stream::UNSAFE, only(), static_cast<c10::StreamId>(stream));
  }
  c10::Device exchangeDevice(c10::Device) const override { return only(); }
  c10::Device getDevice() const override { return only(); }
  c10::Stream getStream(c10::Device) const noexcept override { return numbered(present_stream()); }
  c10::Stream getNewStream(c10::Device, int) const override { return numbered(++num_streams); }
  c10::Stream getDefaultStream(c10::Device) const override { return numbered(0); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return numbered(change_stream(stream.id()));
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    const int64_t mark = ++num_events;
    *event = reinterpret_cast<void*>(mark);
    if (const auto watch = OperatorWatch::current()) watch->marked(mark, stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    const auto watch = OperatorWatch::current();
    if (watch && event != nullptr) watch->held(reinterpret_cast<int64_t>(event), stream.id());
  }
  bool queryEvent(void*) const override { return true; }
  double elapsedTime(void*, void*, const c10::DeviceIndex) const override { return 0; }
  void synchronizeEvent(void* event) const override {
    const auto watch = OperatorWatch::current();
    if (watch && event != nullptr) watch->held_host(reinterpret_cast<int64_t>(event));
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {}

  mutable std::atomic<int64_t> num_streams{0}, num_events{0};
};

// What autograd asks of the library of such devices.
struct PretendedHooks : at::CUDAHooksInterface {
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  void init() const override {}
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return 1; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  bool isPinnedPtr(const void*) const override { return false; }
  // Seeds are set for all devices; nothing is ever drawn on these.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
};

void register_hooks() {
  auto* const registry = at::CUDAHooksRegistry();
  if (registry->Has("CUDAHooks")) return;  // of a libtorch with CUDA
  registry->Register("CUDAHooks", [](at::CUDAHooksArgs) {
    return std::unique_ptr<at::CUDAHooksInterface>(new PretendedHooks);
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("empty.memory_format", pretended_empty);
  library.impl("empty_strided", pretended_empty_strided);
  library.impl("arange", pretended_arange);
  library.impl("arange.start", pretended_arange_start);
  library.impl("arange.start_step", pretended_arange_step);
}

TORCH_LIBRARY_IMPL(_, CustomRNGKeyId, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&pretend>());
}

// These have a composition too, which no device that is planned for uses.
TORCH_LIBRARY_IMPL(aten, CustomRNGKeyId, library) {
  for (const char* name : {"native_layer_norm", "index_select", "native_dropout", "copy_", "abs"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&pretend>());
  }
}

bool is_pretended() { return c10::impl::tls_is_dispatch_key_included(kOperatorKey); }

PretenceScope::PretenceScope()
    : session_(kSessionSlot, std::make_shared<Session>()),
      factories_(kFactoryKey),
      operators_(kOperatorKey) {}

void pretend_gpus(RealGpus real) {
  static const bool has_gpus =
      at::CUDAHooksRegistry()->Has("CUDAHooks") && at::detail::getCUDAHooks().deviceCount() > 0;
  register_hooks();
  auto& place = c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::DeviceType::CUDA)];
  static const auto* const gpu = new PretendedGpu;  // asked for until the process ends
  if (real == RealGpus::hidden || !has_gpus) place.store(gpu);
}

}  // namespace fullshard::tensor
