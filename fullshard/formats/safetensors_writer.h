// Writes safetensors files in one pass over the tensors, in bounded memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fullshard {

struct TensorPlan {
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
};

// One file. The header is written from the plan; then every tensor once, in any order. finish()
// checks that all came, fsyncs and gives the file its name: until then it is PATH.part, which the
// destructor removes. Errors name the file (no room on disk too).
class SafetensorsWriter {
 public:
  SafetensorsWriter(std::string path, std::vector<TensorPlan> tensors);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // CPU; cast to the planned dtype in blocks.
  void write(const std::string& name, const at::Tensor& values);
  // Part of a tensor: elements [begin, begin + values.numel()).
  void write_range(const std::string& name, int64_t begin, const at::Tensor& values);
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fullshard
