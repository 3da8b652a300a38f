// SPDX-License-Identifier: Apache-2.0
// Writes safetensors files in one pass over the tensors, in bounded memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fullshard/formats/element_span.h"

namespace fullshard {

struct TensorPlan {
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
};

// One file. The header is written from the plan; then every tensor once, in any order. finish()
// checks that all were written, fsyncs and renames the file: until then it is PATH.part, which the
// destructor removes. Errors name the file, also when the disk is full.
class SafetensorsWriter {
 public:
  SafetensorsWriter(std::string path, std::vector<TensorPlan> tensors);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Elements [begin, begin + values.numel) of a tensor, cast to the planned dtype in blocks. (Whole
  // tensors and non-contiguous ones: tensor_io/write_tensor.h.)
  void write_range(const std::string& name, int64_t begin, const ElementSpan& values);
  const std::string& path() const;
  const TensorPlan& planned(const std::string& name) const;
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fullshard
