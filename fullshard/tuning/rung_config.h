// SPDX-License-Identifier: Apache-2.0
// A rung as a DeepSpeed file, the one format that can say all of them. What is measured is what is
// written at the end.
#pragma once

#include <cstdint>
#include <string>

#include "fullshard/config/plan.h"
#include "fullshard/tuning/rung.h"

namespace fullshard::tuning {

// What the rungs are written over. `keeps_…`: a flag has settled it, the text says it.
struct ConfigBase {
  std::string text{};  // a DeepSpeed file
  bool keeps_stage = false;
  bool keeps_recompute = false;
  bool keeps_offload = false;
  std::string disk{};  // folder of the rung that offloads to one
};

// The Plan of a run, of whatever family, in DeepSpeed's keys. Schedules keep their defaults.
std::string base_config(const Plan& plan);

std::string rung_config(const ConfigBase& base, const Rung& rung);

// Where the file settles the examples of a step: those of one rank. 0: it does not. An Error (kind
// usage) where they cannot be shared equally.
int64_t examples_per_step(const std::string& config, int64_t ranks);

}  // namespace fullshard::tuning
