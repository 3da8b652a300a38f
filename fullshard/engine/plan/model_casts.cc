// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/model_casts.h"

#include <ATen/core/grad_mode.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/memory/device_dtypes.h"
#include "fullshard/nn/cast_tensors.h"
#include "fullshard/nn/module_walk.h"

namespace fullshard::engine {
namespace {

// Every parameter and buffer of the model by its full name, those of ignored modules too.
std::vector<nn::NamedTensor> all_tensors(torch::nn::Module& root) {
  std::vector<nn::NamedTensor> tensors;
  nn::for_each_node(nn::walk_modules(root), [&](const nn::ModuleNode& node) {
    for (const auto* held : {&node.parameters, &node.buffers}) {
      for (const auto& item : *held) {
        tensors.push_back({nn::join_path(node.path, item.name), item.tensor});
      }
    }
  });
  return tensors;
}

std::set<std::string> buffer_names(const WrapPlan& plan) {
  std::set<std::string> names;
  for (const auto& unit : plan.units) {
    for (const auto& buffer : unit.buffers) names.insert(buffer.name);
  }
  return names;
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.has_storage() && b.has_storage() && a.numel() > 0 && b.is_alias_of(a);
}

void check_stands_alone(const nn::NamedTensor& buffer, const std::vector<nn::NamedTensor>& all,
                        const std::set<std::string>& cast_names) {
  for (const auto& other : all) {
    if (buffer.tensor.is_same(other.tensor)) {
      check(cast_names.count(other.name) == 1,
            "buffer_dtype: buffer '{}' is also '{}' of an ignored module, which must not be cast; "
            "give each module its own, or leave buffer_dtype out",
            buffer.name, other.name);
      continue;
    }
    check(!share_memory(buffer.tensor, other.tensor),
          "buffer_dtype: buffer '{}' shares its memory with '{}', and a cast would part them; "
          "register a copy of it, or leave buffer_dtype out",
          buffer.name, other.name);
  }
}

void check_fp8(const ShardOptions& options, at::Device device) {
  if (options.param_dtype != at::kBFloat16) {
    fail_as(ErrorKind::usage,
            "products are fp8, but param_dtype is {}; fp8 rounds what is computed with in bf16",
            options.param_dtype ? c10::toString(*options.param_dtype) : "the parameters' own");
  }
  const auto why_not = memory::why_no_fp8(device);
  if (!why_not.empty()) fail_as(ErrorKind::usage, "precision fp8: {}", why_not);
}

// An embedding does not multiply, and the loss needs the head's bits.
void set_products(const UnitPlan& unit, ProductPrecision products) {
  const bool is_block = unit.parent >= 0;
  const auto of = [&](const nn::UnitState& state, bool may) {
    return may && state.vocabulary_part() == nn::VocabularyPart::none ? products
                                                                      : ProductPrecision::operands;
  };
  unit.state->set_products(of(*unit.state, is_block));
  for (auto* inner : unit.inner) inner->set_products(of(*inner, true));
}

}  // namespace

void check_dtypes(const ShardOptions& options, at::Device device) {
  const std::pair<const char*, std::optional<at::ScalarType>> all[] = {
      {"param_dtype", options.param_dtype},   {"master_dtype", options.master_dtype},
      {"reduce_dtype", options.reduce_dtype}, {"gradient_dtype", options.gradient_dtype},
      {"buffer_dtype", options.buffer_dtype}, {"output_dtype", options.output_dtype}};
  for (const auto& [name, dtype] : all) {
    const bool is_known = !dtype || *dtype == at::kFloat || *dtype == at::kBFloat16 ||
                          *dtype == at::kHalf || *dtype == at::kDouble;
    if (is_known) continue;
    fail_as(ErrorKind::usage, "{} is {}, expected Float, BFloat16, Half or Double", name,
            c10::toString(*dtype));
  }
  if (options.products != ProductPrecision::operands) check_fp8(options, device);
  if (options.param_dtype != at::kBFloat16) return;
  const auto why_not = memory::why_no_bfloat16(device);
  if (!why_not.empty()) fail_as(ErrorKind::usage, "param_dtype is BFloat16, but {}", why_not);
}

void set_forward_casts(const WrapPlan& plan, const ShardOptions& options) {
  for (const auto& unit : plan.units) {
    const bool is_root = unit.parent < 0;
    nn::ForwardCasts casts;
    if (options.cast_forward_inputs &&
        (is_root || !unit.parameters.empty() || !unit.lenders.empty())) {
      casts.inputs = options.param_dtype;
    }
    if (is_root) casts.outputs = options.output_dtype;
    unit.state->set_casts(casts);
    set_products(unit, options.products);
  }
}

void clear_forward_casts(const WrapPlan& plan) {
  for (const auto& unit : plan.units) {
    unit.state->set_casts({});
    set_products(unit, ProductPrecision::operands);
  }
}

void move_buffers(const WrapPlan& plan, at::Device device) {
  at::NoGradGuard no_grad;
  for (const auto& unit : plan.units) {
    for (const auto& buffer : unit.buffers) {
      if (buffer.tensor.device() != device) buffer.tensor.set_data(buffer.tensor.to(device));
    }
  }
}

void cast_buffers(torch::nn::Module& root, const WrapPlan& plan, at::ScalarType dtype) {
  at::NoGradGuard no_grad;
  const auto all = all_tensors(root);
  const auto names = buffer_names(plan);
  for (const auto& unit : plan.units) {
    for (const auto& buffer : unit.buffers) {
      if (nn::needs_cast(buffer.tensor, dtype)) check_stands_alone(buffer, all, names);
    }
  }
  for (const auto& unit : plan.units) {
    for (const auto& buffer : unit.buffers) {
      if (nn::needs_cast(buffer.tensor, dtype)) buffer.tensor.set_data(buffer.tensor.to(dtype));
    }
  }
}

}  // namespace fullshard::engine
