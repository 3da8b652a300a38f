// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/cache_size.h"

#include <initializer_list>
#include <nlohmann/json.hpp>

namespace fullshard::generation {
namespace {

// The first of these keys that has a number; 0: none.
int64_t number_at(const nlohmann::json& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto found = config.find(key);
    if (found != config.end() && found->is_number_integer()) return found->get<int64_t>();
  }
  return 0;
}

}  // namespace

// Two numbers, a key and a value, for every layer, head and place in a head.
CacheSize cache_size(const LanguageModel& model) {
  if (!model.generates()) return {};
  const auto config = nlohmann::json::parse(model.config_json());
  const int64_t num_heads = number_at(config, {"num_attention_heads", "n_head", "num_heads"});
  const int64_t width = number_at(config, {"hidden_size", "n_embd", "d_model"});
  int64_t head_width = number_at(config, {"head_dim", "d_kv"});
  if (head_width == 0 && num_heads > 0) head_width = width / num_heads;
  const int64_t kv_heads = number_at(config, {"num_key_value_heads"});
  const int64_t num_layers =
      number_at(config, {"num_decoder_layers", "num_hidden_layers", "n_layer", "num_layers"});
  const int64_t numel = 2 * num_layers * (kv_heads > 0 ? kv_heads : num_heads) * head_width;
  return {.numel_per_token = numel,
          .numel_per_source_token = model.is_encoder_decoder() ? numel : 0,
          .num_layers = num_layers};
}

bool is_cache_cheaper_on_host(const CacheRoom& room) {
  const int64_t missing = room.weight_bytes + room.cache_bytes - room.device_bytes;
  if (missing <= 0) return false;
  const bool weights_fit_then = room.weight_bytes + room.window_bytes <= room.device_bytes;
  // Half of it, on average over the steps that fill it.
  if (weights_fit_then) return room.cache_bytes / 2 < missing;
  return room.cache_bytes > room.device_bytes / 2;
}

}  // namespace fullshard::generation
