// SPDX-License-Identifier: Apache-2.0
// What files call the parameters of BERT.
#pragma once

#include <string>

#include "fullshard/models/bert/bert_config.h"
#include "fullshard/models/common/language_model.h"

namespace fullshard::models {

// Parameters have their file's names. Others: without or with "bert." in front (a bare model's
// file for one with a head, and the reverse), and gamma and beta, as norms were called once.
LanguageModel::FileName bert_file_name(const BertConfig& config, const std::string& parameter);

// Heads that are not there, position numbers, and second names of tied tensors.
bool is_ignored_in_bert_files(const BertConfig& config, const std::string& file_name);

}  // namespace fullshard::models
