// SPDX-License-Identifier: Apache-2.0
// Ranks that were told different things, as on hosts whose commands are started by hand.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fullshard/comm/communicator.h"

namespace fullshard::train {

// Collective. `facts` are what every rank must have alike, by name: an Error of kind usage, the
// same on all, names the first that differs, and the ranks.
void check_alike(const Communicator& everyone,
                 const std::vector<std::pair<std::string, std::string>>& facts);

}  // namespace fullshard::train
