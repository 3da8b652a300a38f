// SPDX-License-Identifier: Apache-2.0
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <exception>

#include "fullshard/base/error.h"
#include "fullshard/generation/step_graph.h"

namespace fullshard::generation {

struct StepGraph::Captured {
  at::cuda::CUDAGraph graph;
  at::Tensor logits;
};

StepGraph::StepGraph(at::Device device, int64_t num_rows)
    : num_rows_(num_rows),
      inputs_(at::empty({2, num_rows, 1}, at::TensorOptions().dtype(at::kLong).device(device))),
      tokens_(inputs_.select(0, 0)),
      positions_(inputs_.select(0, 1)) {}

StepGraph::~StepGraph() = default;

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
  const c10::cuda::CUDAGuard on_device(inputs_.device());
  captured_ = std::make_unique<Captured>();
  // The default stream cannot be captured. Threads that watch ranks may go on asking for events.
  const auto stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, inputs_.get_device());
  c10::cuda::getCurrentCUDAStream().synchronize();
  const c10::cuda::CUDAStreamGuard on_stream(stream);
  captured_->graph.capture_begin(/*pool=*/{0, 0}, cudaStreamCaptureModeThreadLocal);
  try {
    captured_->logits = step();
  } catch (...) {
    try {
      captured_->graph.capture_end();
    } catch (const std::exception&) {  // what went wrong first is told
    }
    captured_.reset();
    throw;
  }
  captured_->graph.capture_end();
}

at::Tensor StepGraph::replay() {
  check(captured_ != nullptr, "a step as a graph: it was not captured");
  const c10::cuda::CUDAGuard on_device(inputs_.device());
  captured_->graph.replay();
  return captured_->logits;
}

}  // namespace fullshard::generation
