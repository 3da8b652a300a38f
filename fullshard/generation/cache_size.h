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

struct CacheRoom {
  int64_t weight_bytes = 0;
  int64_t cache_bytes = 0;   // of the largest batch
  int64_t window_bytes = 0;  // of the layers on the device, where the cache is in host memory
  int64_t device_bytes = 0;
};

// Whether they do not fit together, and bringing the cache in every step costs less than bringing
// what of the weights finds no room beside it; or the cache takes more than half of the device.
bool is_cache_cheaper_on_host(const CacheRoom& room);

}  // namespace fullshard::generation
