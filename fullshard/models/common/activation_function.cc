// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/common/activation_function.h"

#include <array>
#include <utility>

namespace fullshard::models {

std::optional<Activation> activation_named(std::string_view name) {
  static constexpr std::array kNames = std::to_array<std::pair<std::string_view, Activation>>({
      {"gelu", Activation::gelu},
      {"gelu_new", Activation::gelu_tanh},
      {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"relu", Activation::relu},
      {"silu", Activation::silu},
      {"swish", Activation::silu},
  });
  for (const auto& [known, kind] : kNames) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

Activation read_activation(ConfigReader& reader, std::string_view key,
                           const std::string& otherwise) {
  if (const auto kind = activation_named(reader.text(key, otherwise))) return *kind;
  reader.refuse(key, "gelu, gelu_new, gelu_pytorch_tanh, relu, silu and swish are supported");
  return *activation_named(otherwise);
}

}  // namespace fullshard::models
