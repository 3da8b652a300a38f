// SPDX-License-Identifier: Apache-2.0
// A head in the file of weights that the model does not use, because its configuration says that
// the embedding is the head.
#pragma once

#include <string>
#include <vector>

#include "fullshard/models/common/language_model.h"
#include "fullshard/train/model_source.h"

namespace fullshard::train {

// What the user is told of tensors of the file that are passed over although they have the
// embedding's shape and other values. May read both.
std::vector<std::string> unused_head_warnings(const ModelSource& source,
                                              const LanguageModel& model);

}  // namespace fullshard::train
