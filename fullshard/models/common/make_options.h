// SPDX-License-Identifier: Apache-2.0
// What decides on a model beside its config.json.
#pragma once

#include "fullshard/models/common/stored_weights.h"

namespace fullshard {

struct MakeOptions {
  StoredWeights weights = {};  // that it will be loaded from
  // It is to be trained: a bare encoder (BertModel) gets the head of its task (BertForMaskedLM).
  // Bare decoders always do.
  bool needs_head = false;
};

}  // namespace fullshard
