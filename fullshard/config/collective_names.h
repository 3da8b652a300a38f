// SPDX-License-Identifier: Apache-2.0
// Collectives as configuration files name them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fullshard::config {

// "all_gather" for itself and for DeepSpeed's and torch's names of its form over flat tensors
// ("all_gather_into_tensor"); nullopt for any other name.
std::optional<std::string> collective_name(std::string_view name);

}  // namespace fullshard::config
