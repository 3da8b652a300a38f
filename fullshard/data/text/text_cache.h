// SPDX-License-Identifier: Apache-2.0
// Keeps tokenised text, so that the next run need not tokenise it again.
#pragma once

#include <string>

#include "fullshard/data/text/tokenise.h"
#include "fullshard/data/tokens/token_file.h"
#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard::data {

// The tokens of text files: from `folder`, written there first if missing; with an empty `folder`
// in memory. A cached file belongs to names, sizes and times of the texts, to the options that
// matter, and to the tokenizer's vocabulary and behaviour on the beginning of each text.
TokenFile tokenised_text(const TokeniseOptions& options, const Tokenizer& tokenizer,
                         const std::string& folder);

}  // namespace fullshard::data
