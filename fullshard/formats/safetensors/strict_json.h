// SPDX-License-Identifier: Apache-2.0
// JSON that somebody else wrote: shallow, without a key twice in one object.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace fullshard::formats {

// Errors begin with `where`, for example "model.safetensors: header".
nlohmann::json parse_strict_json(std::string_view text, const std::string& where);

}  // namespace fullshard::formats
