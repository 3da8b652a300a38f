// SPDX-License-Identifier: Apache-2.0
// A decoding step as a CUDA graph. A step of one token is hundreds of kernels that take a few
// microseconds each: issued one by one, the GPU would wait for the host most of the time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace fullshard::generation {

// Of a batch of so many rows. A build without CUDA has none: making one is an error.
class StepGraph {
 public:
  StepGraph(at::Device device, int64_t num_rows);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  int64_t num_rows() const { return num_rows_; }
  // What every step reads, int64 [rows, 1] on the device; load() brings it there.
  const at::Tensor& tokens() const { return tokens_; }
  const at::Tensor& positions() const { return positions_; }
  void load(const std::vector<int64_t>& tokens, const std::vector<int64_t>& positions);

  // `step` issues the kernels of a step over tokens() and positions() and gives the logits; nothing
  // runs. It reads nothing on the host, and what it uses stays where it is while this lives.
  void capture(const std::function<at::Tensor()>& step);
  // Runs them with what was loaded. The logits are those of the last call.
  at::Tensor replay();

 private:
  struct Captured;
  int64_t num_rows_;
  at::Tensor inputs_, tokens_, positions_;
  std::unique_ptr<Captured> captured_;
};

}  // namespace fullshard::generation
