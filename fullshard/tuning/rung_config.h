// SPDX-License-Identifier: Apache-2.0
// A rung as a DeepSpeed file, the one format that can express all of them. The file that is
// measured is the one that is written at the end.
#pragma once

#include <cstdint>
#include <string>

#include "fullshard/config/plan.h"
#include "fullshard/tuning/rung.h"

namespace fullshard::tuning {

// What the rungs are applied to. `keeps_…`: a flag has fixed it, and the text has its value.
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

// The examples of one rank in a step, if the file fixes them. 0: it does not. An Error (kind usage)
// if they cannot be divided equally.
int64_t examples_per_step(const std::string& config, int64_t ranks);

}  // namespace fullshard::tuning
