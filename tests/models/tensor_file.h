// SPDX-License-Identifier: Apache-2.0
// Reads a small safetensors file: 8 bytes of length, a JSON header, the data.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/files.h"

namespace fullshard::testing {

using TensorFile = std::map<std::string, at::Tensor>;

inline at::ScalarType dtype_named(const std::string& name) {
  if (name == "F32") return at::kFloat;
  if (name == "I64") return at::kLong;
  throw std::runtime_error("a fixture holds dtype " + name);
}

inline TensorFile read_tensor_file(const std::string& path) {
  const std::string bytes = read_file(path);
  if (bytes.size() < 8) throw std::runtime_error("no fixture at " + path);
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  TensorFile tensors;
  const auto header = nlohmann::json::parse(bytes.substr(8, header_size));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto begin = entry["data_offsets"][0].get<uint64_t>();
    auto tensor = at::empty(entry["shape"].get<std::vector<int64_t>>(),
                            dtype_named(entry["dtype"].get<std::string>()));
    std::memcpy(tensor.data_ptr(), bytes.data() + 8 + header_size + begin, tensor.nbytes());
    tensors.emplace(name, tensor);
  }
  return tensors;
}

}  // namespace fullshard::testing
