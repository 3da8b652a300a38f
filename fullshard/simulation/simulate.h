// SPDX-License-Identifier: Apache-2.0
// How fast a run would be on a cluster that is not here: the engine's own schedule, recorded with
// tensors that have no memory, replayed on streams with a cost per call. docs/planning.md, "What a
// cluster would do".
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "fullshard/config/plan.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/planning/estimate.h"
#include "fullshard/simulation/cluster.h"
#include "fullshard/simulation/kernel_table.h"
#include "fullshard/simulation/link_cost.h"
#include "fullshard/simulation/replay.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard {

struct SimulateOptions {
  Cluster cluster{};
  int ranks = 8;  // up to those of one host, or whole hosts
  int64_t sequence_length = 512;
  int64_t target_length = 0;  // of encoder-decoder models; 0: as sequence_length
  bool reduce_once = false;
  double label_smoothing = 0;
  simulation::KernelTable kernels{};  // empty: the cluster's roofline
};

struct Simulation {
  int ranks = 1;
  double step_seconds = 0;
  int64_t num_tokens = 0;  // of one step on one rank
  Estimate memory{};
  simulation::Replay timeline{};  // of the last step
  simulation::SentBytes sent{};   // by a rank, in one step

  double tokens_per_second() const { return tokens_per_second_per_gpu() * ranks; }
  double tokens_per_second_per_gpu() const {
    return static_cast<double>(num_tokens) / step_seconds;
  }
};

// `model` is deferred (nn/deferred.h) and is used up. From then on this process works with GPUs
// that do not exist, and uses no real ones.
Simulation simulate(const std::shared_ptr<LanguageModel>& model, const Plan& plan,
                    const SimulateOptions& options);

namespace simulation {

// The schedule alone, and what the rank holds.
struct RecordedRun {
  RecordedSchedule schedule{};
  Estimate memory{};
};
// `real`: whether real GPUs can be used afterwards; then streams are not distinguished.
RecordedRun record_run(const std::shared_ptr<LanguageModel>& model, const Plan& plan,
                       const SimulateOptions& options,
                       tensor::RealGpus real = tensor::RealGpus::hidden);

}  // namespace simulation
}  // namespace fullshard
