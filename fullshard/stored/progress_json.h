// SPDX-License-Identifier: Apache-2.0
// Progress as a checkpoint's manifest holds it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "fullshard/stored/training_progress.h"

namespace fullshard::stored {

nlohmann::json progress_json(const Progress& progress);
// Errors begin with `where`.
Progress parse_progress(const nlohmann::json& json, const std::string& where);

}  // namespace fullshard::stored
