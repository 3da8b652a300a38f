// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/product_work.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/Allocator.h>
#include <c10/core/GradMode.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace fullshard::tensor {
namespace {

using Arguments = std::vector<c10::IValue>;

constexpr int64_t kMostTried = int64_t{1} << 27;  // multiplications: some milliseconds

// Where the first of the two matrices is among the arguments.
const std::map<std::string, size_t>& products() {
  static const std::map<std::string, size_t> first = {
      {"aten::mm", 0}, {"aten::bmm", 0}, {"aten::addmm", 1}, {"aten::baddbmm", 1}};
  return first;
}

// libtorch's CPU allocator tells a thread's profiler of everything that it hands out and gets back.
class PeakMemory : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    const std::lock_guard lock(mutex_);
    held_ += bytes;
    peak_ = std::max(peak_, held_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t beyond_held() const { return peak_ - held_; }

 private:
  std::mutex mutex_;
  int64_t held_ = 0, peak_ = 0;
};

c10::IValue with_memory(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return value;
  const auto& like = value.toTensor();
  // Not zeroed: an expanded tensor, whose elements share memory, cannot be.
  return at::empty_strided(like.sizes(), like.strides(), like.options());
}

void call(const c10::OperatorHandle& op, const Arguments& arguments,
          const std::shared_ptr<PeakMemory>& memory) {
  const c10::NoGradGuard no_grad;
  Arguments given;  // outlive the watch: it may not be told of what it did not see taken
  for (const auto& argument : arguments) given.push_back(with_memory(argument));
  Arguments stack = given;
  const c10::DebugInfoGuard watched(c10::DebugInfoKind::PROFILER_STATE, memory);
  op.callBoxed(stack);
}

// On a thread that computes, where the caller only pretends to.
int64_t try_out(const c10::OperatorHandle& op, const Arguments& arguments) {
  const auto memory = std::make_shared<PeakMemory>();
  std::exception_ptr error;
  std::thread([&, num_threads = at::get_num_threads()] {
    try {
      at::set_num_threads(num_threads);
      call(op, arguments, memory);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return memory->beyond_held();
}

std::string key_of(const c10::OperatorHandle& op, const Arguments& arguments) {
  auto key = fmt::format("{}.{}", op.operator_name().name, op.operator_name().overload_name);
  for (const auto& argument : arguments) {
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    const auto& tensor = argument.toTensor();
    key += fmt::format(" {}{}{}", static_cast<int>(tensor.scalar_type()), tensor.sizes(),
                       tensor.strides());
  }
  return key;
}

}  // namespace

int64_t product_work_bytes(const c10::OperatorHandle& op, const Arguments& arguments) {
  const auto found = products().find(op.operator_name().name);
  if (found == products().end()) return 0;
  const auto& left = arguments[found->second].toTensor();
  const auto& right = arguments[found->second + 1].toTensor();
  if (!left.is_cpu() || left.element_size() != 2 || left.numel() == 0) return 0;
  const int64_t num_sums = left.numel() / left.size(-1) * right.size(-1);
  if (num_sums * left.size(-1) > kMostTried) {
    return num_sums * static_cast<int64_t>(sizeof(float));
  }
  static std::mutex mutex;
  static std::map<std::string, int64_t> tried;
  const std::lock_guard lock(mutex);
  const std::string key = key_of(op, arguments);
  if (!tried.contains(key)) tried[key] = try_out(op, arguments);
  return tried[key];
}

}  // namespace fullshard::tensor
