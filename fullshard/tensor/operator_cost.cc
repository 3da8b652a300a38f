// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/operator_cost.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>

#include <functional>
#include <set>
#include <string>
#include <utility>

namespace fullshard::tensor {
namespace {

using CallArguments = std::vector<c10::IValue>;

std::string short_name(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  const size_t colon = name.rfind(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

const c10::IValue* named(const c10::OperatorHandle& op, const CallArguments& arguments,
                         const std::string& name) {
  const auto& known = op.schema().arguments();
  for (size_t i = 0; i < known.size() && i < arguments.size(); ++i) {
    if (known[i].name() == name) return &arguments[i];
  }
  return nullptr;
}

void for_each_used(const c10::IValue& value, const std::function<void(const at::Tensor&)>& act) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) act(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) act(tensor);
  }
}

double product_of(const std::vector<int64_t>& sizes) {
  double product = 1;
  for (const int64_t size : sizes) product *= static_cast<double>(size);
  return product;
}

void describe_product(OperatorCall& call, const at::Tensor& left, const at::Tensor& right) {
  const bool is_batched = left.dim() == 3;
  call.name = is_batched ? "bmm" : "mm";
  call.kind = OperatorKind::product;
  call.dims = {is_batched ? left.size(0) : 1, left.size(-2), right.size(-1), left.size(-1)};
  call.dtype = left.scalar_type();
  call.flops = 2 * product_of(call.dims);
}

// Two products of queries and keys forward, five backward; a causal mask leaves out half of them.
void describe_attention(OperatorCall& call, const c10::OperatorHandle& op,
                        const CallArguments& arguments) {
  const auto& query = named(op, arguments, "query")->toTensor();
  const auto& key = named(op, arguments, "key")->toTensor();
  const auto* const causal = named(op, arguments, "is_causal");
  const bool is_backward = call.name.ends_with("_backward");
  const bool is_causal = causal != nullptr && causal->isBool() && causal->toBool();
  const auto* const bias = named(op, arguments, "attn_bias");
  const bool is_biased = bias != nullptr && bias->isTensor() && bias->toTensor().defined();
  const auto* const dropout = named(op, arguments, "dropout_p");
  const bool is_dropped = dropout != nullptr && dropout->isDouble() && dropout->toDouble() > 0;
  call.name = fmt::format("{}{}{}attention{}", is_causal ? kCausal : "", is_biased ? kBiased : "",
                          is_dropped ? kDropped : "", is_backward ? "_backward" : "");
  call.kind = OperatorKind::attention;
  call.dims = {query.size(0), query.size(1), query.size(2), key.size(2), query.size(3)};
  call.dtype = query.scalar_type();
  call.flops = (is_backward ? 10 : 4) * (is_causal ? 0.5 : 1) * product_of(call.dims);
}

// Tensors that an operator reads before it writes them are touched twice.
bool only_overwrites(const std::string& name) {
  static const std::set<std::string> overwriting = {"copy_", "zero_", "fill_"};
  return overwriting.contains(name);
}

void count_arguments(OperatorCall& call, const c10::OperatorHandle& op,
                     const CallArguments& arguments) {
  const auto& known = op.schema().arguments();
  for (size_t i = 0; i < known.size() && i < arguments.size(); ++i) {
    const bool is_output = known[i].is_out();
    const auto* const alias = known[i].alias_info();
    const bool is_written = alias != nullptr && alias->isWrite();
    const bool is_twice = is_written && !is_output && !only_overwrites(call.name);
    for_each_used(arguments[i], [&](const at::Tensor& tensor) {
      if (!tensor.is_cpu()) call.bytes += touched_bytes(tensor) * (is_twice ? 2 : 1);
    });
  }
}

bool is_on_device(const CallArguments& arguments) {
  bool found = false;
  for (const auto& argument : arguments) {
    for_each_used(argument, [&](const at::Tensor& tensor) { found = found || tensor.is_cuda(); });
  }
  return found;
}

void describe_copy(OperatorCall& call, const at::Tensor& target, const at::Tensor& source) {
  if (target.is_cpu() == source.is_cpu()) return;
  call.kind = target.is_cpu() ? OperatorKind::to_host : OperatorKind::to_device;
  call.bytes = touched_bytes(target);
}

}  // namespace

std::optional<OperatorCall> describe_operator(const c10::OperatorHandle& op,
                                              const std::vector<c10::IValue>& arguments) {
  static const std::set<std::string> for_the_allocator = {"record_stream", "set_", "resize_"};
  OperatorCall call{.name = short_name(op)};
  if (!is_on_device(arguments) || for_the_allocator.contains(call.name)) return std::nullopt;
  count_arguments(call, op, arguments);
  for_each_used(arguments.front(),
                [&](const at::Tensor& tensor) { call.dtype = tensor.scalar_type(); });
  if (call.name == "mm" || call.name == "bmm") {
    describe_product(call, arguments[0].toTensor(), arguments[1].toTensor());
  } else if (call.name == "addmm" || call.name == "addmm_" || call.name.starts_with("baddbmm")) {
    describe_product(call, arguments[1].toTensor(), arguments[2].toTensor());
  } else if (call.name.starts_with("_scaled_dot_product_")) {
    describe_attention(call, op, arguments);
  } else if (call.name == "copy_") {
    describe_copy(call, arguments[0].toTensor(), arguments[1].toTensor());
  }
  return call;
}

}  // namespace fullshard::tensor
