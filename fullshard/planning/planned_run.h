// SPDX-License-Identifier: Apache-2.0
// The steps of a plan: what a trainer does, with tensors that have no memory.
#pragma once

#include <functional>
#include <memory>

#include "fullshard/base/bytes.h"
#include "fullshard/comm/world/world.h"
#include "fullshard/planning/estimate.h"

namespace fullshard::planning {

// Workspaces that libtorch allocates for cuBLAS and for cuBLASLt with the first product, and keeps:
// 32 MiB each on GPUs of compute capability 9 and above, less before. A plan computes nothing, so
// they are added here.
inline constexpr int64_t kLibraryWorkspaces = 2 * 32 * kMiB;
// The same again for the stream on which micro-batches are captured as graphs
// (memory/device_graph.h). Whether they are is known only in the first steps, so a plan counts it.
inline constexpr int64_t kGraphWorkspaces = kLibraryWorkspaces;

// World of the ranks that are planned for.
World planned_world(const EstimateOptions& options);

// Runs inside a scope of tensor/pretence.h and of a watch. `micro_batch` returns one loss.
struct PlannedRun {
  const Plan& plan;
  const EstimateOptions& options;
  std::function<at::Tensor()> micro_batch;
  int num_steps = 2;
  // The first, the last and one between them give the peak of all; a timeline needs every one.
  int most_micro_batches = 3;
  bool settles = true;  // after each step; else updates may overlap the next forward
};

// The first step observes the order of units, the others prefetch by it. `after_step` is called
// when the host is done with a step.
Estimate run_plan(const std::shared_ptr<torch::nn::Module>& model, const World& world,
                  const PlannedRun& run, const std::function<void()>& after_step = {});

// A batch of the model's task, of which every token counts.
ModelInputs planned_inputs(const LanguageModel& model, int64_t rows,
                           const EstimateOptions& options);

}  // namespace fullshard::planning
