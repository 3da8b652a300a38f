// SPDX-License-Identifier: Apache-2.0
// The configuration as the user gave it, beside the run that it described.
#pragma once

#include <string>

#include "fullshard/config/plan.h"

namespace fullshard::train {

// Writes given_config.yaml and given_config.json into the run's folder: what `config_file` names,
// or is, as JSON or in base64, and the other files that the plan's keys are from. Empty: no file
// was named.
void keep_config(const std::string& run, const std::string& config_file, const Plan& plan);

}  // namespace fullshard::train
