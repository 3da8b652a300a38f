// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/model_tensors.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace fullshard::checkpoint {
namespace {

void add_group(const engine::ParamGroup& group, std::vector<ModelTensor>& tensors) {
  for (size_t slot = 0; slot < group.layout().slots().size(); ++slot) {
    ModelTensor tensor;
    tensor.names = group.spec().parameters[slot].names;
    tensor.shape = group.layout().slots()[slot].shape;
    tensor.dtype = group.spec().master_dtype;
    tensor.group = &group;
    tensor.slot = static_cast<int>(slot);
    tensors.push_back(std::move(tensor));
  }
}

ModelTensor whole_tensor(std::vector<std::string> names, const at::Tensor& whole) {
  ModelTensor tensor;
  tensor.names = std::move(names);
  tensor.shape = whole.sizes().vec();
  tensor.dtype = whole.scalar_type();
  tensor.whole = whole.detach();
  return tensor;
}

void add_buffer(const nn::NamedTensor& buffer, const std::vector<std::string>& deferred,
                std::vector<ModelTensor>& tensors) {
  const auto* memory = buffer.tensor.unsafeGetTensorImpl();
  for (auto& other : tensors) {
    if (!other.is_buffer || other.whole.unsafeGetTensorImpl() != memory) continue;
    other.names.push_back(buffer.name);
    return;
  }
  auto tensor = whole_tensor({buffer.name}, buffer.tensor);
  tensor.whole = buffer.tensor;
  tensor.is_buffer = true;
  tensor.is_required = std::find(deferred.begin(), deferred.end(), buffer.name) != deferred.end();
  tensors.push_back(std::move(tensor));
}

}  // namespace

int64_t ModelTensor::numel() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::optional<ModelTensor::Part> ModelTensor::own_part() const {
  if (group == nullptr) {
    if (!whole.is_contiguous()) return Part{0, whole.contiguous().view({-1})};
    return Part{0, whole.view({-1})};
  }
  for (const auto& piece : group->pieces()) {
    if (piece.slot == slot) return Part{piece.begin, group->master(piece)};
  }
  return std::nullopt;
}

bool is_frozen(const ModelTensor& tensor) {
  return tensor.group != nullptr && !tensor.group->trainable();
}

std::vector<ModelTensor> model_tensors(const engine::Engine& engine) {
  std::vector<ModelTensor> tensors;
  for (const auto& unit : engine.units()) {
    for (const auto& group : unit->groups()) add_group(*group, tensors);
  }
  const auto& plan = engine.plan();
  for (const auto& parameter : plan.ignored_parameters) {
    tensors.push_back(whole_tensor(parameter.names, parameter.tensor));
  }
  for (const auto& unit : plan.units) {
    for (const auto& buffer : unit.buffers) add_buffer(buffer, plan.deferred_buffers, tensors);
  }
  for (const auto& buffer : plan.ignored_buffers) {
    add_buffer(buffer, plan.deferred_buffers, tensors);
  }
  return tensors;
}

}  // namespace fullshard::checkpoint
