// SPDX-License-Identifier: Apache-2.0
// Tensors of the Llama family in files: the module has transformers' own paths.
#pragma once

#include <string>
#include <string_view>

#include "fullshard/models/common/language_model.h"

namespace fullshard::models {

LanguageModel::FileName llama_file_name(const std::string& parameter, bool tied);
// Rotary tables that old versions stored, and the head when it is the embedding.
bool is_ignored_in_llama_files(std::string_view name, bool tied);

}  // namespace fullshard::models
