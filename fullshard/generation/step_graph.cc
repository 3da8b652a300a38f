// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/step_graph.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "fullshard/base/error.h"

namespace fullshard::generation {

StepGraph::StepGraph(at::Device device, int64_t num_rows)
    : num_rows_(num_rows),
      inputs_(at::empty({2, num_rows, 1}, at::TensorOptions().dtype(at::kLong).device(device))),
      tokens_(inputs_.select(0, 0)),
      positions_(inputs_.select(0, 1)),
      graph_(device) {}

void StepGraph::load(const std::vector<int64_t>& tokens, const std::vector<int64_t>& positions) {
  check(static_cast<int64_t>(tokens.size()) == num_rows_ && tokens.size() == positions.size(),
        "a step as a graph: {} tokens and {} positions for {} rows", tokens.size(),
        positions.size(), num_rows_);
  const auto host = at::empty({2, num_rows_, 1}, at::TensorOptions().dtype(at::kLong));
  auto* to = host.mutable_data_ptr<int64_t>();
  std::ranges::copy(positions, std::ranges::copy(tokens, to).out);
  inputs_.copy_(host);
}

void StepGraph::capture(const std::function<at::Tensor()>& step) {
  graph_.capture([&] { logits_ = step(); });
}

at::Tensor StepGraph::replay() {
  graph_.replay();
  return logits_;
}

}  // namespace fullshard::generation
