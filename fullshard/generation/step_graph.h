// SPDX-License-Identifier: Apache-2.0
// A decoding step as a graph of device work.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "fullshard/memory/device_graph.h"

namespace fullshard::generation {

// Of a batch of so many rows.
class StepGraph {
 public:
  StepGraph(at::Device device, int64_t num_rows);

  int64_t num_rows() const { return num_rows_; }
  // What every step reads, int64 [rows, 1] on the device; load() brings it there.
  const at::Tensor& tokens() const { return tokens_; }
  const at::Tensor& positions() const { return positions_; }
  void load(const std::vector<int64_t>& tokens, const std::vector<int64_t>& positions);

  // `step` issues the kernels of a step over tokens() and positions() and gives the logits, as
  // DeviceGraph::capture says.
  void capture(const std::function<at::Tensor()>& step);
  // Runs them with what was loaded. The logits are those of the last call.
  at::Tensor replay();

 private:
  int64_t num_rows_;
  at::Tensor inputs_, tokens_, positions_;
  memory::DeviceGraph graph_;
  at::Tensor logits_;
};

}  // namespace fullshard::generation
