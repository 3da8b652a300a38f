// SPDX-License-Identifier: Apache-2.0
// ShardOptions as names and values, so that ranks can tell each other what they were told.
#pragma once

#include <string>
#include <vector>

#include "fullshard/engine/plan/options.h"

namespace fullshard::engine {

struct OptionText {
  std::string name;   // as a program writes it: "offload.optimizer.tier"
  std::string value;  // "not set" for what is absent
};

// All of them but what a host may have of its own (folders, page-locked memory, how its disk is
// read) and what serves tests.
std::vector<OptionText> option_texts(const ShardOptions& options);

}  // namespace fullshard::engine
