// SPDX-License-Identifier: Apache-2.0
// Rows of JSON that are documents of their own: conversations, prompts with completions, texts.
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
  std::string completion = {};  // of texts
  // Of a conversation, and how many of its messages are a prompt: 0 where `messages` gave it.
  Json messages = nullptr;
  size_t num_prompt_messages = 0;
  Json tools = nullptr;  // what the model may call, for the chat template
};

// Told by their keys, in this order: `messages`; `prompt` and `completion`, both texts or both
// lists of messages; `field`. Every error names file and line, and is of the kind `input`.
std::vector<DocumentRow> read_rows(const TextBlock& block, const std::string& field);

}  // namespace fullshard::data
