// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/error.h"
#include "fullshard/generation/step_graph.h"

namespace fullshard::generation {

struct StepGraph::Captured {};

StepGraph::StepGraph(at::Device, int64_t num_rows) : num_rows_(num_rows) {
  fail("a step as a graph: this build has no CUDA; configure with the cuda preset");
}
StepGraph::~StepGraph() = default;
void StepGraph::load(const std::vector<int64_t>&, const std::vector<int64_t>&) {}
void StepGraph::capture(const std::function<at::Tensor()>&) {}
at::Tensor StepGraph::replay() { return {}; }

}  // namespace fullshard::generation
