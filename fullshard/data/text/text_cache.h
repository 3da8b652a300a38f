// SPDX-License-Identifier: Apache-2.0
// Tokenised text that the next run need not make again.
#pragma once

#include <string>

#include "fullshard/data/text/tokenise.h"
#include "fullshard/data/tokens/token_file.h"
#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard::data {

// The tokens of text files: from `folder`, written there if they are not yet; with an empty
// `folder` in memory. A cached file belongs to names, sizes and times of the texts, to what matters
// of the options, and to the tokenizer's vocabulary and behaviour on the beginning of each text.
TokenFile tokenised_text(const TokeniseOptions& options, const Tokenizer& tokenizer,
                         const std::string& folder);

}  // namespace fullshard::data
