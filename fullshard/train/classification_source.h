// SPDX-License-Identifier: Apache-2.0
// A pretrained encoder as the source of a classifier.
#pragma once

#include <string>
#include <vector>

#include "fullshard/train/model_source.h"

namespace fullshard::train {

// The source with a configuration that says BertForSequenceClassification with these classes. One
// that says so already keeps its own, unless `is_new_head`. What is no BERT is an Error of the kind
// `usage`.
ModelSource classification_source(ModelSource source, const std::vector<std::string>& classes,
                                  bool is_new_head);

}  // namespace fullshard::train
