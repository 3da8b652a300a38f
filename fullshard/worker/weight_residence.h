// SPDX-License-Identifier: Apache-2.0
// Where the weights of `generate` and `eval` are: whole on the device, or fetched unit by unit in
// every step, in part or all; where keys and values are; what a step costs at least; what does not
// fit at all.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/comm/world/world.h"
#include "fullshard/config/run_options.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/planning/pass_estimate.h"
#include "fullshard/tiers/resident_units.h"

namespace fullshard::worker {

// What is known before the model is sharded.
struct WeightNeeds {
  std::string command = "generate";
  int64_t weight_bytes = 0;      // of the whole model, in the dtype that is computed in
  int64_t cache_bytes = 0;       // also: keys and values of this rank's largest batch
  int64_t activation_bytes = 0;  // and what its fullest pass takes
  int64_t available_bytes = 0;   // on the device, or of the host where that is the device
  int num_copies = 1;            // of the weights in that memory, were they whole on every rank
  bool is_cpu = true;
  // Keys and values are kept in host memory; `cache_bytes` are then those of the layers that are on
  // the device at a time.
  bool keeps_cache_on_host = false;

  int64_t batch_bytes() const { return cache_bytes + activation_bytes; }
  bool fits_whole() const { return num_copies * weight_bytes + batch_bytes() <= available_bytes; }
};

// The result of `plan`; nothing, with a warning from rank 0, if there is none: the run starts
// anyway.
planning::PassBytes plan_passes(const World& world,
                                const std::function<planning::PassBytes()>& plan);

// Collective: the rank with the least room decides. `passes` is what the largest batch of this rank
// takes.
WeightNeeds weight_needs(const LanguageModel& model, const World& world,
                         const ShardOptions& options, const planning::PassBytes& passes);

// Puts keys and values into host memory if that is `wanted`; by default, if they do not fit next to
// the weights and fetching them costs less than fetching the weights that would not fit, or if they
// take more than half of the device. An Error of kind no_fit if the host has no room either.
void place_cache(WeightNeeds& needs, const World& world, int64_t num_layers,
                 const std::optional<bool>& wanted);

// By default, weights that do not fit an accelerator rest in host memory. Sets what the engine
// needs for weights that are fetched. An Error of kind no_fit if they cannot be. `are_in_files`:
// they need not be copied to a disk.
void place_weights(const WeightNeeds& needs, const World& world, bool are_in_files,
                   ShardOptions& options);

struct WeightResidence {
  tiers::ResidentUnits units;
  std::vector<std::string> warnings;
  tiers::Tier tier = tiers::Tier::device;  // where fetched ones rest
  bool reads_in_place = false;             // in the model's own files

  // "weights: 438.1 MiB, whole in memory"
  std::string text() const;
};

// For a model that was sharded with the options from place_weights(). An Error of kind no_fit if
// not even the fetched ones fit. All ranks get the same answer for the same needs. Absent
// `resident_share`: all that is not requested to rest elsewhere.
WeightResidence weight_residence(const ShardedModel& model, const WeightNeeds& needs,
                                 const std::optional<double>& resident_share);

// Seconds that a step takes at least, by bandwidths that are measured here; nothing if one of them
// is unknown.
std::optional<double> step_floor(const WeightResidence& residence, at::Device device);

}  // namespace fullshard::worker
