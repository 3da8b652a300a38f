// SPDX-License-Identifier: Apache-2.0
// What a Plan says of offload, as tiers/ takes it, and what is wrong with it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fullshard/config/plan.h"
#include "fullshard/tiers/tier_options.h"

namespace fullshard::config {

tiers::TierOptions offload_of(const Plan& plan);

// ZeRO's stage; 3 for FSDP's strategies, which say what they offload by one key.
int offload_stage(const Plan& plan);

// Settings that disagree with the stage or with each other, each at its key.
void check_offload(const Plan& plan, Problems& problems);

// On a CPU device the host tier is the device's own memory: a warning.
void note_offload_on_cpu(const Plan& plan, const std::optional<std::string>& device,
                         Problems& problems);

// The value of --offload-step as a number from 0 to 1; nothing for a word.
std::optional<double> share_of_step(const std::string& value);

// The value of --offload: what goes (optimizer, param, all) and where to (cpu, or a folder).
struct OffloadWords {
  bool optimizer = false;
  bool parameters = false;
  std::string device{};  // "cpu" or "nvme"
  std::optional<std::string> folder{};
};
// Nothing when it says something else; offload_words_problem() then says what.
std::optional<OffloadWords> offload_words(const std::string& value);
std::string offload_words_problem(const std::string& value);

}  // namespace fullshard::config
