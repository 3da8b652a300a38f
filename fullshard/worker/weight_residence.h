// SPDX-License-Identifier: Apache-2.0
// Where the weights of `generate` and `eval` are: whole on the device, or fetched unit by unit in
// every step, in part or all; what a step costs at least; what does not fit at all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/comm/world/world.h"
#include "fullshard/config/run_options.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/tiers/resident_units.h"

namespace fullshard::worker {

// What is known before the model is sharded.
struct WeightNeeds {
  std::string command = "generate";
  int64_t weight_bytes = 0;     // of the whole model, in the dtype that is computed in
  int64_t batch_bytes = 0;      // beside them: of this rank's largest batch
  int64_t available_bytes = 0;  // on the device, or of the host where that is the device
  int num_copies = 1;           // of the weights in that memory, were they whole on every rank
  bool is_cpu = true;

  bool fits_whole() const { return num_copies * weight_bytes + batch_bytes <= available_bytes; }
};

// Collective: the rank with the least room decides. `numel_of_batch` are the elements that the
// largest batch of this rank takes: keys and values, or activations.
WeightNeeds weight_needs(const LanguageModel& model, const World& world,
                         const ShardOptions& options, int64_t numel_of_batch);

// Where nothing says otherwise, weights that do not fit an accelerator rest in host memory. Sets
// what the engine needs for weights that are fetched. An Error of kind no_fit where they cannot be.
void place_weights(const WeightNeeds& needs, const World& world, ShardOptions& options);

struct WeightResidence {
  tiers::ResidentUnits units;
  std::vector<std::string> warnings;
  tiers::Tier tier = tiers::Tier::device;  // where fetched ones rest

  // "weights: 438.1 MiB, whole in memory"
  std::string text() const;
};

// Of a model that was sharded with the options that place_weights() left. An Error of kind no_fit
// where not even the fetched ones fit. All ranks get the same answer for the same needs. Absent
// `resident_share`: as much as is not asked to rest elsewhere.
WeightResidence weight_residence(const ShardedModel& model, const WeightNeeds& needs,
                                 const std::optional<double>& resident_share);

// Seconds that a step takes at least, by bandwidths that are measured here; nothing where one of
// them is not known.
std::optional<double> step_floor(const WeightResidence& residence, at::Device device);

}  // namespace fullshard::worker
