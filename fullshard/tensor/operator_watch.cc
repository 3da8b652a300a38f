// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/operator_watch.h"

#include <utility>

namespace fullshard::tensor {
namespace {

// A slot that libtorch fills on telephones only.
const auto kOperatorSlot = c10::DebugInfoKind::MOBILE_RUNTIME_INFO;

thread_local int num_unwatched_operators = 0;
thread_local int64_t stream_of_thread = 0;

}  // namespace

std::shared_ptr<OperatorWatch> OperatorWatch::current() {
  if (num_unwatched_operators > 0) return nullptr;
  auto* info = c10::ThreadLocalDebugInfo::get(kOperatorSlot);
  return info == nullptr ? nullptr : static_cast<OperatorWatch*>(info)->shared_from_this();
}

OperatorWatchScope::OperatorWatchScope(std::shared_ptr<OperatorWatch> watch)
    : guard_(kOperatorSlot, std::move(watch)) {}

UnwatchedOperators::UnwatchedOperators() { ++num_unwatched_operators; }
UnwatchedOperators::~UnwatchedOperators() { --num_unwatched_operators; }

int64_t touched_bytes(const at::Tensor& tensor) {
  auto bytes = static_cast<int64_t>(tensor.element_size());
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.stride(dim) != 0 || tensor.size(dim) == 0) bytes *= tensor.size(dim);
  }
  return bytes;
}

void note_kernel(std::string_view name, std::initializer_list<at::Tensor> used) {
  const auto watch = OperatorWatch::current();
  if (!watch) return;
  OperatorCall call{.name = std::string(name)};
  for (const auto& tensor : used) {
    if (!tensor.defined() || tensor.is_cpu()) continue;
    if (call.bytes == 0) call.dtype = tensor.scalar_type();
    call.bytes += touched_bytes(tensor);
  }
  if (call.bytes > 0) watch->ran(call, present_stream());
}

void note_kernel(std::string_view name, int64_t bytes) {
  const auto watch = OperatorWatch::current();
  if (watch && bytes > 0) {
    watch->ran({.name = std::string(name), .bytes = bytes}, present_stream());
  }
}

void note_product(const at::Tensor& output, const at::Tensor& left, const at::Tensor& right) {
  const auto watch = OperatorWatch::current();
  if (!watch || output.is_cpu()) return;
  const int64_t m = left.size(0), n = right.size(1), k = left.size(1);
  watch->ran(
      {.name = "mm",
       .kind = OperatorKind::product,
       .dims = {1, m, n, k},
       .dtype = left.scalar_type(),
       .flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
       .bytes = touched_bytes(output) + touched_bytes(left) + touched_bytes(right)},
      present_stream());
}

int64_t present_stream() { return stream_of_thread; }
int64_t change_stream(int64_t stream) { return std::exchange(stream_of_thread, stream); }

}  // namespace fullshard::tensor
