// SPDX-License-Identifier: Apache-2.0
// Rows of JSON that are separate documents: conversations, prompts with completions, texts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/data/text/json_records.h"
#include "fullshard/data/text/text_blocks.h"

namespace fullshard::data {

enum class RowKind { text, completion, conversation };

struct DocumentRow {
  RowKind kind = RowKind::text;
  int64_t number = 0;           // its line, or its number in an array, for TextBlock::place
  std::string text = {};        // or the prompt of a completion
  std::string completion = {};  // when both are texts
  // A conversation, and how many of its messages are a prompt: 0 if they came from `messages`.
  Json messages = nullptr;
  size_t num_prompt_messages = 0;
  Json tools = nullptr;  // what the model may call, for the chat template
};

// The kind of a row is told by its keys, in this order: `messages`; `prompt` and `completion`, both
// texts or both lists of messages; `field`. Every error names file and line, and is of the kind
// `input`.
std::vector<DocumentRow> read_rows(const TextBlock& block, const std::string& field);

}  // namespace fullshard::data
