// SPDX-License-Identifier: Apache-2.0
// A tokenizer made of parts: added tokens, normalizer, pre-tokenizer, model, post-processor,
// decoder.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "fullshard/text/models/model.h"
#include "fullshard/text/pipeline/added_tokens.h"
#include "fullshard/text/pipeline/decoder.h"
#include "fullshard/text/pipeline/normalizer.h"
#include "fullshard/text/pipeline/post_processor.h"
#include "fullshard/text/pipeline/pre_tokenizer.h"
#include "fullshard/text/pipeline/special_tokens.h"
#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard::text {

struct PipelineParts {
  AddedTokens added;
  NormalizerPointer normalizer;       // null: none
  PreTokenizerPointer pre_tokenizer;  // null: none
  std::unique_ptr<const Model> model;
  PostProcessor post_processor;
  DecoderPointer decoder;  // null: tokens are joined by spaces
  SpecialTokens special;
  std::set<int32_t> hidden;  // ids that decode() leaves out with the special ones
  bool cache_words = true;   // false where a word is a whole text
  bool cuts_left = false;
  std::string file;  // named in errors during use; "": none
};

// The roles of the configuration, looked up in these parts.
SpecialTokens special_tokens_of(const PipelineParts& parts, const TokenizerConfig& config);

std::unique_ptr<Tokenizer> make_pipeline(PipelineParts parts);

}  // namespace fullshard::text
