// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace fullshard {

// Which tokens of a document have a loss. completions_if_any: completions and what the assistant
// says in rows that have these, and all tokens of texts. completions: these only, so that a text is
// an error. all: all tokens.
enum class LossOn { completions_if_any, completions, all };

}  // namespace fullshard
