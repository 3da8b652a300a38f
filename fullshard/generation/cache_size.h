// SPDX-License-Identifier: Apache-2.0
// How large a key-value cache becomes, before there is one.
#pragma once

#include <cstdint>

#include "fullshard/models/common/language_model.h"

namespace fullshard::generation {

struct CacheSize {
  int64_t numel_per_token = 0;         // keys and values of all layers
  int64_t numel_per_source_token = 0;  // of an encoder-decoder model's source
  int64_t num_layers = 0;
};

// By the model's own configuration; zeros for one that makes no text.
CacheSize cache_size(const LanguageModel& model);

}  // namespace fullshard::generation
