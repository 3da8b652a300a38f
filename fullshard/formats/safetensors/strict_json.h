// SPDX-License-Identifier: Apache-2.0
// Parses JSON from untrusted files: nesting is limited, and a key occurs once in an object.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace fullshard::formats {

// Errors begin with `where`, for example "model.safetensors: header".
nlohmann::json parse_strict_json(std::string_view text, const std::string& where);

}  // namespace fullshard::formats
