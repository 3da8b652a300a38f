// SPDX-License-Identifier: Apache-2.0
// The weights of a model's folder as tensors, and such a folder made of tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "fullshard/formats/weights/open_weights.h"
#include "fullshard/tensor_io/read_tensor.h"
#include "fullshard/tensor_io/write_tensor.h"

namespace fullshard::testing {

using Tensors = std::map<std::string, at::Tensor>;

inline Tensors tensors_in(const std::string& folder) {
  const auto source = open_weights(folder);
  Tensors tensors;
  for (const auto& stored : source->tensors()) {
    tensors[stored.name] = tensor_io::read_tensor(*source, stored.name);
  }
  return tensors;
}

inline void write_tensors(const std::string& folder, const Tensors& tensors) {
  std::vector<TensorPlan> plan;
  for (const auto& [name, tensor] : tensors) plan.push_back({name, tensor.sizes().vec()});
  SafetensorsWriter writer(folder + "/model.safetensors", plan);
  for (const auto& [name, tensor] : tensors) tensor_io::write_tensor(writer, name, tensor);
  writer.finish();
}

}  // namespace fullshard::testing
