// SPDX-License-Identifier: Apache-2.0
// What files call the parameters of T5.
#pragma once

#include <string>

#include "fullshard/models/common/language_model.h"
#include "fullshard/models/t5/t5_config.h"

namespace fullshard::models {

// Parameters have their file's names. The embedding has three.
LanguageModel::FileName t5_file_name(const std::string& parameter);

// Second names of tied tensors, and a table that old files hold and nothing uses.
bool is_ignored_in_t5_files(const T5Config& config, const std::string& file_name);

}  // namespace fullshard::models
