// SPDX-License-Identifier: Apache-2.0
// A checkpoint on demand: somebody leaves its name beside a run's checkpoints, and the run saves it
// after the step it is at.
#pragma once

#include <optional>
#include <string>

namespace fullshard::checkpoint {

// `directory` holds the checkpoints; it is made when it is not there. The name must be one that a
// folder beside the others can have: otherwise an error of the kind usage.
void ask_for_save(const std::string& directory, const std::string& name);

// The run's side, for one rank: what was asked for, if anything, which is then asked no more. Costs
// one call to the system where nothing was. A name that cannot be is dropped.
std::optional<std::string> take_save_request(const std::string& directory);

}  // namespace fullshard::checkpoint
