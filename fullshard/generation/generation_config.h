// SPDX-License-Identifier: Apache-2.0
// generation_config.json of a Hugging Face folder, and what config.json says of the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/generation/options.h"

namespace fullshard {

struct GenerationConfig {
  std::string path = {};  // of the file; empty: there is none
  GenerateOptions options = {};
  std::optional<int64_t> start_token = {};  // decoder_start_token_id
  // Of keys that are unknown or cannot be honoured, each with the file's name.
  std::vector<std::string> warnings = {};
};

// Strict: a value that makes no sense is an Error of kind input that lists all of them; a key that
// is not known, or not honoured and set to something else than its default, is a warning. `where`
// names the file. Values that make no sense together are let through: flags may override one of
// them, and check_generate_options() looks at what is left.
GenerationConfig read_generation_config(const std::string& json, const std::string& where);

// What a folder says: its generation_config.json where there is one, and the end-of-sequence tokens
// of `model_config` (the text of config.json) where that names none.
GenerationConfig load_generation_config(const std::string& folder, const std::string& model_config);

}  // namespace fullshard
