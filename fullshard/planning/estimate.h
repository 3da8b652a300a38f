// SPDX-License-Identifier: Apache-2.0
// What a run would hold, to the byte, without running it: the engine itself makes two steps of a
// model that has no memory, over ranks that do not exist, and the ledger counts.
// docs/planning.md, "How a plan is made".
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "fullshard/comm/recorder.h"
#include "fullshard/config/plan.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/tiers/tier.h"

namespace fullshard {

// Where bytes lie: Tier::device, Tier::host or Tier::disk.
using Tier = tiers::Tier;

// One rank's bytes on one tier.
struct TierEstimate {
  int64_t rest_bytes = 0;  // between steps
  int64_t peak_bytes = 0;
  std::string peak_at{};  // without an article: "backward of unit 'layers.3'"
  std::array<int64_t, tiers::kNumPurposes> by_purpose{};  // at the peak
};

// The fullest rank's. Shards are padded to equal sizes: every rank holds the same.
struct Estimate {
  int ranks = 1;
  at::Device device = at::kCPU;
  std::array<TierEstimate, tiers::kNumTiers> tiers{};  // by tiers::Tier
  int64_t num_parameters = 0;
  int64_t num_tokens = 0;  // of one step on one rank

  const TierEstimate& on(tiers::Tier tier) const { return tiers[static_cast<size_t>(tier)]; }
  TierEstimate& on(tiers::Tier tier) { return tiers[static_cast<size_t>(tier)]; }
};

struct EstimateOptions {
  int ranks = 1;
  int ranks_per_host = 0;  // 0: eight on GPUs, all on CPUs
  at::Device device = at::kCPU;
  int64_t sequence_length = 512;
  int64_t target_length = 0;  // of encoder-decoder models; 0: as sequence_length
  bool reduce_once = false;
  double label_smoothing = 0;
};

// `model` is deferred (nn/deferred.h) and is used up. Micro-batch, accumulation, optimizer,
// precision and sharding are the plan's. No threads, no files, no memory to speak of.
Estimate estimate(const std::shared_ptr<LanguageModel>& model, const Plan& plan,
                  const EstimateOptions& options);

// The same for a module of your own: `loss` makes one micro-batch's loss on that device, inside the
// plan's pretence: it may create tensors, but not read values. An operator for which
// libtorch cannot infer the sizes of the results, as those of BatchNorm, is an Error that names it.
Estimate estimate(const std::shared_ptr<torch::nn::Module>& model, const Plan& plan,
                  const EstimateOptions& options,
                  const std::function<at::Tensor(at::Device)>& loss);

}  // namespace fullshard
