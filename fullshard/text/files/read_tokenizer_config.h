// SPDX-License-Identifier: Apache-2.0
// The files next to a vocabulary: tokenizer_config.json, special_tokens_map.json,
// added_tokens.json.
#pragma once

#include <string>

#include "fullshard/text/pipeline/special_tokens.h"

namespace fullshard::text {

// `folder` ends with '/' or is "". Throws Error of the kind input when a file is not JSON.
TokenizerConfig read_tokenizer_config(const std::string& folder);

}  // namespace fullshard::text
