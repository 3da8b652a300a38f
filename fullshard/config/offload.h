// SPDX-License-Identifier: Apache-2.0
// A Plan's offload settings as tiers/ takes them, and their checks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fullshard/config/plan.h"
#include "fullshard/tiers/tier_options.h"

namespace fullshard::config {

tiers::TierOptions offload_of(const Plan& plan);

// The ZeRO stage; 3 for FSDP's strategies, which have one key for all offload.
int offload_stage(const Plan& plan);

// Reports settings that disagree with the stage or with each other, each at its key.
void check_offload(const Plan& plan, Problems& problems);

// Warns on a CPU device, where the host tier is the device's own memory.
void note_offload_on_cpu(const Plan& plan, const std::optional<std::string>& device,
                         Problems& problems);

// The value of --offload-step as a number from 0 to 1; nullopt for a word.
std::optional<double> share_of_step(const std::string& value);

// The value of --offload: what to offload (optimizer, param, all) and where (cpu, or a folder).
struct OffloadWords {
  bool optimizer = false;
  bool parameters = false;
  std::string device{};  // "cpu" or "nvme"
  std::optional<std::string> folder{};
};
// nullopt when the value is invalid; offload_words_problem() then gives the message.
std::optional<OffloadWords> offload_words(const std::string& value);
std::string offload_words_problem(const std::string& value);

}  // namespace fullshard::config
