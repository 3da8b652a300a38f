// SPDX-License-Identifier: Apache-2.0
// A model's head where the file of weights is that of a bare model: it is drawn anew.
#pragma once

#include <string>
#include <vector>

#include "fullshard/models/common/language_model.h"
#include "fullshard/train/model_source.h"

namespace fullshard::train {

// The parameters of the head that get new values instead of the file's: all of them when the file
// has none, or when the user asks for it (`is_asked_for`, the flag --new-head); none when the file
// has them all. Asked for without an effect (a source without weights, a head that is the
// embedding) is an Error of kind usage; a file with a part of a head one of kind input.
std::vector<std::string> new_head(const ModelSource& source, const LanguageModel& model,
                                  bool is_asked_for);

// What the user is told before training starts when he did not ask for it.
std::string new_head_warning(const ModelSource& source, const std::vector<std::string>& head);

}  // namespace fullshard::train
