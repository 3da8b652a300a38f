// SPDX-License-Identifier: Apache-2.0
// The reader of tokenizer.json. Keys that it does not know are refused by their path.
#pragma once

#include <memory>
#include <string>

#include "fullshard/text/files/json_node.h"
#include "fullshard/text/models/model.h"
#include "fullshard/text/pipeline/decoder.h"
#include "fullshard/text/pipeline/normalizer.h"
#include "fullshard/text/pipeline/pipeline.h"
#include "fullshard/text/pipeline/post_processor.h"
#include "fullshard/text/pipeline/pre_tokenizer.h"

namespace fullshard::text {

// The parts of the tokenizer. "truncation" and "padding" are ignored: transformers sets both for
// every call.
PipelineParts read_tokenizer_json(const JsonNode& root);

NormalizerPointer read_normalizer(const JsonNode& node, int depth = 0);
// `as_bytes`: a ByteLevel as the last step leaves words as bytes.
PreTokenizerPointer read_pre_tokenizer(const JsonNode& node, bool as_bytes, int depth = 0);
// `as_bytes`: words are bytes; only for models that takes_bytes().
std::unique_ptr<const Model> read_model(const JsonNode& node, bool as_bytes);
bool takes_bytes(const JsonNode& model);
void read_post_processor(const JsonNode& node, PostProcessor& processor, int depth = 0);
DecoderPointer read_decoder(const JsonNode& node, int depth = 0);

// {"String": …} or {"Regex": …}.
std::unique_ptr<Pattern> read_pattern(const JsonNode& node);

// The steps of a "Sequence", under the key that its family uses; refuses deep nesting.
template <class Read>
auto read_steps(const JsonNode& node, std::string_view key, int depth, const Read& read) {
  constexpr int kDeepest = 8;
  if (depth >= kDeepest) node.refuse("sequences are nested too deeply");
  const JsonNode steps = node.at(key);
  std::vector<decltype(read(steps, false))> result;
  for (size_t i = 0; i < steps.size(); ++i) {
    result.push_back(read(steps.item(i), i + 1 == steps.size()));
  }
  return result;
}

}  // namespace fullshard::text
