// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/pretended_results.h"

#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/result_type.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/tensor/product_work.h"

namespace fullshard::tensor {
namespace {

using Arguments = std::vector<c10::IValue>;
using Results = std::vector<c10::IValue>;
using Rule = std::function<Results(const Arguments&)>;

constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

at::Tensor like(const at::Tensor& tensor) { return at::empty(tensor.sizes(), tensor.options()); }

at::TensorOptions in_float(const at::Tensor& tensor) { return tensor.options().dtype(at::kFloat); }

at::Tensor if_wanted(bool wanted, const c10::IValue& tensor) {
  return wanted && tensor.isTensor() && tensor.toTensor().defined() ? like(tensor.toTensor())
                                                                    : at::Tensor();
}

// [batch, heads, queries, D], laid out as kernels of attention lay it out: queries before heads.
at::Tensor by_queries(const at::Tensor& query, int64_t width) {
  return at::empty({query.size(0), query.size(2), query.size(1), width}, query.options())
      .transpose(1, 2);
}

at::Tensor log_sums(const at::Tensor& query) {
  return at::empty({query.size(0), query.size(1), query.size(2)}, in_float(query));
}

Results layer_norm(const Arguments& arguments) {
  const auto& input = arguments[0].toTensor();
  const auto inner = arguments[1].toIntVector();
  auto statistics = input.sizes().vec();
  for (size_t i = statistics.size() - inner.size(); i < statistics.size(); ++i) statistics[i] = 1;
  return {like(input), at::empty(statistics, in_float(input)),
          at::empty(statistics, in_float(input))};
}

Results layer_norm_backward(const Arguments& arguments) {
  const auto mask = arguments[7].toBoolList();
  return {if_wanted(mask[0], arguments[1]), if_wanted(mask[1], arguments[5]),
          if_wanted(mask[2], arguments[6])};
}

Results index_select(const Arguments& arguments) {
  const auto& self = arguments[0].toTensor();
  auto sizes = self.sizes().vec();
  sizes[static_cast<size_t>(at::maybe_wrap_dim(arguments[1].toInt(), self.dim()))] =
      arguments[2].toTensor().numel();
  return {at::empty(sizes, self.options())};
}

Results dropout(const Arguments& arguments) {
  const auto& input = arguments[0].toTensor();
  return {like(input), at::empty(input.sizes(), input.options().dtype(at::kBool))};
}

Results where(const Arguments& arguments) {
  const auto &condition = arguments[0].toTensor(), &self = arguments[1].toTensor();
  const auto& other = arguments[2].toTensor();
  const auto sizes = at::infer_size(at::infer_size(condition.sizes(), self.sizes()), other.sizes());
  const auto dtype = at::result_type(self, other);
  return {at::empty(sizes, self.options().dtype(dtype))};
}

Results attention_on_cpu(const Arguments& arguments) {
  const auto& query = arguments[0].toTensor();
  return {by_queries(query, arguments[2].toTensor().size(3)), log_sums(query)};
}

Results attention_backward(const Arguments& arguments) {
  const auto gradient = [&](size_t index) {
    const auto& tensor = arguments[index].toTensor();
    return by_queries(tensor, tensor.size(3));
  };
  return {gradient(1), gradient(2), gradient(3)};
}

// Both fused kernels of GPUs: output, log-sums, lengths (none), seed and offset, no mask.
Results attention_on_gpu(const Arguments& arguments) {
  const auto& query = arguments[0].toTensor();
  const auto number = at::empty({}, query.options().dtype(at::kLong));
  return {by_queries(query, arguments[2].toTensor().size(3)),
          log_sums(query),
          at::Tensor(),
          at::Tensor(),
          query.size(2),
          arguments[1].toTensor().size(2),
          number,
          number,
          at::Tensor()};
}

// The kernel of GPUs that takes a mask or a bias: output, log-sums of rows by 32, seed and offset.
Results masked_attention(const Arguments& arguments) {
  constexpr int64_t kRows = 32;
  const auto& query = arguments[0].toTensor();
  const auto number = at::empty({}, query.options().dtype(at::kLong));
  const int64_t rows = (query.size(2) + kRows - 1) / kRows * kRows;
  return {by_queries(query, arguments[2].toTensor().size(3)),
          at::empty({query.size(0), query.size(1), rows}, in_float(query)), number, number};
}

Results masked_attention_backward(const Arguments& arguments) {
  Results results = attention_backward(arguments);
  const auto& bias = arguments[4].toTensor();
  const bool is_wanted = arguments[10].toBoolList()[3] && bias.defined();
  results.emplace_back(is_wanted ? at::empty(bias.sizes(), bias.options()) : at::Tensor());
  return results;
}

Results of_first(const Arguments& arguments) { return {like(arguments[0].toTensor())}; }

Results truth_of_first(const Arguments& arguments) {
  const auto& tensor = arguments[0].toTensor();
  return {at::empty(tensor.sizes(), tensor.options().dtype(at::kBool))};
}

Results unfold_backward(const Arguments& arguments) {
  return {at::empty(arguments[1].toIntVector(), arguments[0].toTensor().options())};
}

// Of a table with so many rows, wherever the gradient of its rows goes.
Results embedding_backward(const Arguments& arguments) {
  const auto& gradient = arguments[0].toTensor();
  return {at::empty({arguments[2].toInt(), gradient.size(-1)}, gradient.options())};
}

Results dot(const Arguments& arguments) {
  return {at::empty({}, arguments[0].toTensor().options())};
}

const std::map<std::string, Rule>& rules() {
  static const std::map<std::string, Rule> all = {
      {"aten::native_layer_norm", layer_norm},
      {"aten::native_layer_norm_backward", layer_norm_backward},
      {"aten::index_select", index_select},
      {"aten::native_dropout", dropout},
      {"aten::native_dropout_backward", of_first},
      {"aten::where.self", where},
      {"aten::dot", dot},
      {"aten::flip", of_first},
      {"aten::relu", of_first},
      {"aten::abs", of_first},
      {"aten::isnan", truth_of_first},
      {"aten::unfold_backward", unfold_backward},
      {"aten::embedding_dense_backward", embedding_backward},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", attention_on_cpu},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward},
      {"aten::_scaled_dot_product_cudnn_attention", attention_on_gpu},
      {"aten::_scaled_dot_product_cudnn_attention_backward", attention_backward},
      {"aten::_scaled_dot_product_efficient_attention", masked_attention},
      {"aten::_scaled_dot_product_efficient_attention_backward", masked_attention_backward},
      {"aten::_scaled_dot_product_flash_attention", attention_on_gpu},
      {"aten::_scaled_dot_product_flash_attention_backward", attention_backward},
  };
  return all;
}

std::string full_name(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

// While it lives, tensors are made as ever.
class OutsideScope {
 public:
  explicit OutsideScope(const ShapeScope& keys)
      : factories_(keys.factories), operators_(keys.operators) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard factories_, operators_;
};

at::Tensor as_meta(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

c10::IValue as_meta(const c10::IValue& value) {
  if (value.isTensor()) return as_meta(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(as_meta(tensor));
    return list;
  }
  return value;
}

at::Device device_of(const Arguments& arguments) {
  for (const auto& argument : arguments) {
    if (argument.isTensor() && argument.toTensor().defined()) return argument.toTensor().device();
    if (argument.isTensorList() && !argument.toTensorVector().empty()) {
      return argument.toTensorVector().front().device();
    }
  }
  return at::kCPU;
}

void infer(const c10::OperatorHandle& op, torch::jit::Stack* stack, const Arguments& arguments,
           const ShapeScope& keys) {
  const auto device = device_of(arguments);
  {
    const OutsideScope outside(keys);
    for (const auto& argument : arguments) stack->push_back(as_meta(argument));
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), stack);
  }
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) {
    auto& result = (*stack)[i];
    if (!result.isTensor() || !result.toTensor().defined()) continue;
    const auto meta = result.toTensor();
    result = at::empty_strided(meta.sizes(), meta.strides(), meta.options().device(device));
  }
}

}  // namespace

void take_room_for_work(const c10::OperatorHandle& op, const Arguments& arguments) {
  const int64_t bytes = product_work_bytes(op, arguments);
  if (bytes > 0) at::empty({(bytes + kFloatBytes - 1) / kFloatBytes}, at::kFloat);
}

void make_results(const c10::OperatorHandle& op, torch::jit::Stack* stack, const ShapeScope& keys) {
  const auto name = full_name(op);
  const auto found = rules().find(name);
  const auto arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  if (found != rules().end()) {
    for (auto& result : found->second(arguments)) stack->push_back(std::move(result));
    return;
  }
  check(op.hasKernelForDispatchKey(c10::DispatchKey::Meta),
        "a plan does not know the sizes of what {} returns; libtorch knows no sizes for it either",
        name);
  infer(op, stack, arguments, keys);
  take_room_for_work(op, arguments);
}

}  // namespace fullshard::tensor
