// SPDX-License-Identifier: Apache-2.0
// Tokenizers in the formats that are older than tokenizer.json.
#pragma once

#include <string>

#include "fullshard/text/pipeline/pipeline.h"
#include "fullshard/text/pipeline/special_tokens.h"

namespace fullshard::text {

// vocab.json + merges.txt: GPT-2, RoBERTa or Qwen2, by the configuration's tokenizer_class.
PipelineParts byte_level_parts(const std::string& vocab_json, const std::string& merges_txt,
                               const TokenizerConfig& config);

// vocab.txt: BERT.
PipelineParts bert_parts(const std::string& vocab_txt, const TokenizerConfig& config);

}  // namespace fullshard::text
