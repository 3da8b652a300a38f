// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/operator_flops.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "fullshard/engine/passes/present_pass.h"
#include "fullshard/tensor/operator_watch.h"

namespace fullshard::train {
namespace {

using CallInputs = c10::ArrayRef<const c10::IValue>;

double flops_of_product(const c10::IValue& left, const c10::IValue& right) {
  const at::Tensor& a = left.toTensor();
  const at::Tensor& b = right.toTensor();
  return 2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(-1));
}

// Two products of queries and keys forward, five backward; a causal mask leaves out half of them.
double flops_of_attention(const at::Tensor& query, const at::Tensor& key, bool is_causal,
                          double num_products) {
  return 2 * num_products * (is_causal ? 0.5 : 1) * static_cast<double>(query.numel()) *
         static_cast<double>(key.size(-2));
}

double flops_of_call(std::string_view name, const CallInputs& inputs) {
  if (name == "aten::mm" || name == "aten::bmm") return flops_of_product(inputs[0], inputs[1]);
  if (name == "aten::addmm" || name == "aten::addmm_" || name == "aten::baddbmm" ||
      name == "aten::baddbmm_") {
    return flops_of_product(inputs[1], inputs[2]);
  }
  constexpr std::string_view kAttention = "aten::_scaled_dot_product_flash_attention_for_cpu";
  if (name == kAttention) {
    return flops_of_attention(inputs[0].toTensor(), inputs[1].toTensor(), inputs[4].toBool(), 2);
  }
  if (name.starts_with(kAttention)) {  // its backward
    return flops_of_attention(inputs[1].toTensor(), inputs[2].toTensor(), inputs[7].toBool(), 5);
  }
  return 0;
}

std::unique_ptr<at::ObserverContext> count_call(const at::RecordFunction& function) {
  const auto watch = tensor::OperatorWatch::current();
  if (!watch) return nullptr;
  const double flops = flops_of_call(function.name(), function.inputs());
  if (flops > 0) watch->ran({.flops = flops}, 0);
  return nullptr;
}

}  // namespace

struct OperatorFlops::Counted : tensor::OperatorWatch {
  void ran(const tensor::OperatorCall& call, int64_t /*stream*/) override {
    const bool is_backward = torch::autograd::get_current_graph_task_id() != -1;
    const std::lock_guard lock(mutex);
    (is_backward ? backward : forward)[engine::present_pass().unit] += call.flops;
  }
  void marked(int64_t /*event*/, int64_t /*stream*/) override {}
  void held(int64_t /*event*/, int64_t /*stream*/) override {}
  void held_host(int64_t /*event*/) override {}
  void moved_on_disk(int64_t /*number*/, int64_t /*bytes*/, bool /*is_write*/) override {}
  void waited_for_disk(int64_t /*number*/) override {}

  std::mutex mutex;
  std::map<std::string, double> forward, backward;  // by the unit's path
};

class OperatorFlops::Scope {
 public:
  explicit Scope(const std::shared_ptr<Counted>& counted)
      : watched_(counted),
        handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(count_call)
                                               .needsInputs(true)
                                               .scopes({at::RecordScope::FUNCTION}))) {}
  ~Scope() { at::removeCallback(handle_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  tensor::OperatorWatchScope watched_;
  at::CallbackHandle handle_;
};

OperatorFlops::OperatorFlops() : counted_(std::make_shared<Counted>()) {}
OperatorFlops::~OperatorFlops() = default;

void OperatorFlops::begin() { scope_ = std::make_unique<Scope>(counted_); }

void OperatorFlops::end() { scope_.reset(); }

void OperatorFlops::add_to(FlopsProfile& profile) const {
  const auto add = [&](const std::map<std::string, double>& counted, double UnitFlops::*pass) {
    for (const auto& [path, flops] : counted) {
      UnitFlops* found = &profile.units.front();
      for (UnitFlops& unit : profile.units) {
        if (unit.path == path) found = &unit;
      }
      found->*pass += flops / static_cast<double>(profile.accumulation);
    }
  };
  add(counted_->forward, &UnitFlops::forward);
  add(counted_->backward, &UnitFlops::backward);
}

}  // namespace fullshard::train
