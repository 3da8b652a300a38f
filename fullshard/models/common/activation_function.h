// SPDX-License-Identifier: Apache-2.0
// The pointwise functions of feed-forward blocks, by the names that config.json gives them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fullshard/models/common/config_reader.h"
#include "fullshard/ops/activation.h"

namespace fullshard::models {

// "gelu", "gelu_new" and "gelu_pytorch_tanh", "relu", "silu" and "swish".
std::optional<Activation> activation_named(std::string_view name);
// Another name is a problem of the reader.
Activation read_activation(ConfigReader& reader, std::string_view key,
                           const std::string& otherwise);

}  // namespace fullshard::models
