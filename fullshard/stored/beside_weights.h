// SPDX-License-Identifier: Apache-2.0
// What Accelerate and the Trainer save next to weights: steps, optimizer, schedule, loss scale.
#pragma once

#include <string>
#include <vector>

#include "fullshard/stored/any_checkpoint.h"

namespace fullshard::stored {

// "Trainer", "Accelerate", or "Hugging Face" for weights alone.
std::string kind_of_weights_folder(const std::string& folder);

// The Trainer's step count, if there is a trainer_state.json.
void add_trainer_state(AnyCheckpoint& opened, const std::string& folder);

// These return the files of torch.save that they found.
// An optimizer in one file, by names or by numbers.
std::vector<std::string> add_optimizer_file(AnyCheckpoint& opened, const std::string& folder);
// Position in the schedule and loss scale; call it after the optimizer, whose step count is needed
// to interpret the schedule's.
std::vector<std::string> add_saved_progress(AnyCheckpoint& opened, const std::string& folder);

}  // namespace fullshard::stored
