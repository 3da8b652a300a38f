// SPDX-License-Identifier: Apache-2.0
// Where a run that is resumed goes on in its data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/data/dataset.h"
#include "fullshard/stored/training_progress.h"

namespace fullshard::train {

// For a checkpoint that is saved after so many steps. `mixture` is the data set's; nothing: it is
// not said.
DataPlace data_place(const ExampleOrder& order, int64_t steps,
                     std::optional<std::string> mixture = {});

// For the order of the run that goes on. Steps may take another number of examples than before.
// Checkpoints that do not say it, as those of other programs, are taken to have had steps of the
// same size.
ExamplePlace data_start(const Progress& progress);

// What of the data is not what the checkpoint was trained on, a line each; of the mixture where
// both say it.
std::vector<std::string> changes_of_data(const Progress& progress, const ExampleOrder& order,
                                         const std::optional<std::string>& mixture = {});

}  // namespace fullshard::train
