// SPDX-License-Identifier: Apache-2.0
// What Accelerate and the Trainer leave beside weights: steps, optimizer, schedule, loss scale.
#pragma once

#include <string>
#include <vector>

#include "fullshard/stored/any_checkpoint.h"

namespace fullshard::stored {

// "Trainer", "Accelerate", or "Hugging Face" for weights alone.
std::string kind_of_weights_folder(const std::string& folder);

// Steps that the Trainer counted (trainer_state.json), if that is there.
void add_trainer_state(AnyCheckpoint& opened, const std::string& folder);

// These give the files of torch.save that they found.
// An optimizer in one file, by names or by numbers.
std::vector<std::string> add_optimizer_file(AnyCheckpoint& opened, const std::string& folder);
// Place in the schedule and loss scale; after the optimizer, whose steps tell what a schedule
// means.
std::vector<std::string> add_saved_progress(AnyCheckpoint& opened, const std::string& folder);

}  // namespace fullshard::stored
