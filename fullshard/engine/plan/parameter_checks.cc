// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/parameter_checks.h"

#include <ATen/MemoryOverlap.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/nn/gradient_hook.h"
#include "fullshard/tensor/storage.h"

namespace fullshard::engine {
namespace {

void check_not_sharded(const std::string& name, const at::Tensor& tensor) {
  if (nn::has_gradient_hook(tensor)) {
    fail_as(ErrorKind::usage,
            "shard: parameter '{}' is sharded already, as a part of another model; let one "
            "ShardedModel hold all modules that share it",
            name);
  }
  if (tensor::is_released(tensor)) {
    fail_as(ErrorKind::usage,
            "shard: parameter '{}' was sharded before, and its values went with the ShardedModel "
            "that held them; a module is sharded once: build it again",
            name);
  }
}

void check_dense(const std::string& name, const at::Tensor& tensor) {
  if (tensor.is_quantized()) {
    fail_as(ErrorKind::usage,
            "shard: parameter '{}' is quantised ({}), which shards cannot hold; hold its integers "
            "and its scales as parameters or buffers of their own, or leave its module to "
            "ShardOptions::ignored_modules",
            name, c10::toString(tensor.scalar_type()));
  }
  if (tensor.layout() == at::kStrided) return;
  fail_as(ErrorKind::usage,
          "shard: parameter '{}' is not dense, and shards hold dense tensors only; convert it with "
          "to_dense() before, or leave its module to ShardOptions::ignored_modules",
          name);
}

void check_trainable(const std::string& name, const at::Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  const bool can_train =
      dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf || dtype == at::kDouble;
  if (!tensor.requires_grad() || can_train) return;
  fail_as(ErrorKind::usage,
          "shard: parameter '{}' is {}, and what is trained is Float, BFloat16, Half or Double; "
          "convert it or freeze it (requires_grad) before shard()",
          name, c10::toString(dtype));
}

void check_alone(const std::string& name, const at::Tensor& tensor) {
  check_dense(name, tensor);
  check_not_sharded(name, tensor);
  check_trainable(name, tensor);
  if (tensor.is_inference()) {
    fail_as(ErrorKind::usage,
            "shard: parameter '{}' was made inside c10::InferenceMode, and autograd cannot record "
            "what is done with it; build the module outside",
            name);
  }
  if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    fail_as(ErrorKind::usage,
            "shard: several elements of parameter '{}' lie in one place of memory (it is "
            "expanded), and would become separate ones; register what it was expanded from, and "
            "expand in forward",
            name);
  }
}

struct Placed {
  std::string name;
  const at::Tensor* tensor;
  const char* begin;
  const char* end;  // of the last element
  bool is_parameter;
};

void add_placed(std::vector<Placed>& all, const std::string& name, const at::Tensor& tensor,
                bool is_parameter) {
  const bool has_memory = tensor.numel() > 0 && !tensor.is_meta() &&
                          tensor.layout() == at::kStrided && tensor.has_storage();
  if (!has_memory || tensor::is_released(tensor)) return;
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
  all.push_back({name, &tensor, begin,
                 begin + (last + 1) * static_cast<int64_t>(tensor.element_size()), is_parameter});
}

// By address; at one address the longer first.
std::vector<Placed> in_order_of_memory(const WrapPlan& plan) {
  std::vector<Placed> all;
  for (const auto& unit : plan.units) {
    for (const auto& each : unit.parameters) add_placed(all, each.names.front(), each.tensor, true);
    for (const auto& each : unit.buffers) add_placed(all, each.name, each.tensor, false);
  }
  std::stable_sort(all.begin(), all.end(), [](const Placed& a, const Placed& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  return all;
}

// Columns of one matrix are intertwined without sharing an element: what libtorch cannot tell
// quickly passes.
bool share_elements(const Placed& a, const Placed& b) {
  if (a.tensor->is_same(*b.tensor) || !(a.is_parameter || b.is_parameter)) return false;
  const auto status = at::get_overlap_status(*a.tensor, *b.tensor);
  return status == at::MemOverlapStatus::Full || status == at::MemOverlapStatus::Partial;
}

void check_apart(const WrapPlan& plan) {
  const auto all = in_order_of_memory(plan);
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = i + 1; j < all.size() && all[j].begin < all[i].end; ++j) {
      if (!share_elements(all[i], all[j])) continue;
      const auto& first = all[i].is_parameter ? all[i] : all[j];
      const auto& other = all[i].is_parameter ? all[j] : all[i];
      fail_as(
          ErrorKind::usage,
          "shard: parameter '{}' and {} '{}' are two tensors over the same memory, which shards "
          "would part; register one tensor at both places to tie them, or give each memory of "
          "its own (clone())",
          first.name, other.is_parameter ? "parameter" : "buffer", other.name);
    }
  }
}

}  // namespace

void check_parameters(const WrapPlan& plan) {
  for (const auto& unit : plan.units) {
    for (const auto& each : unit.parameters) {
      if (!each.tensor.is_meta()) check_alone(each.names.front(), each.tensor);
    }
  }
  check_apart(plan);
}

}  // namespace fullshard::engine
