// SPDX-License-Identifier: Apache-2.0
// GPT-2's tensors in files. The module has transformers' own paths; files hold the weights of its
// Conv1D layers as [in, out], the module as [out, in].
#pragma once

#include <string>
#include <string_view>

#include "fullshard/models/common/language_model.h"

namespace fullshard::models {

LanguageModel::FileName gpt2_file_name(const std::string& parameter, bool tied);
// Masks that old versions stored, and the head when it is the embedding.
bool is_ignored_in_gpt2_files(std::string_view name, bool tied);

}  // namespace fullshard::models
