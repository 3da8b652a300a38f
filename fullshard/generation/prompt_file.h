// SPDX-License-Identifier: Apache-2.0
// Prompts as users write them: texts, conversations, or token ids.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/text/chat/chat_template.h"
#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard {

// One of the three.
struct WrittenPrompt {
  std::string text = {};
  nlohmann::ordered_json messages = nullptr;  // an array, for the chat template
  nlohmann::ordered_json tools = nullptr;     // what the model may call, beside messages
  std::vector<int64_t> tokens = {};
  std::string place = {};  // "prompts.jsonl, line 3", for messages
};

enum class PromptFormat { lines, json_lines };

// A prompt per line; of JSON objects with "prompt", "messages" (and perhaps "tools") or "tokens".
// Blank lines and a byte order mark are passed over. Everything that is wrong is an Error of kind
// input that names the line. `where` names the file.
std::vector<WrittenPrompt> parse_prompts(std::string_view text, PromptFormat format,
                                         const std::string& where);
// By the ending of its name: .jsonl and .ndjson, or lines of text; .json is an Error.
std::vector<WrittenPrompt> read_prompts(const std::string& path);
// What came in on standard input, of which `path` may name a copy. Its first letter decides.
std::vector<WrittenPrompt> read_prompt_input(const std::string& path = "/dev/stdin");

// An Error of kind input that names the byte where a prompt is no UTF-8.
void check_prompt_is_text(std::string_view text, const std::string& place);

// What turns prompts into tokens. Borrows all of it; `tokenizer` and `chat` may be null.
struct PromptEncoder {
  const Tokenizer* tokenizer = nullptr;
  const LoadedChatTemplate* chat = nullptr;
  bool ends_prompts = false;  // encoder-decoder models read the end of their source

  // The text that is encoded: the template's where there are messages, empty where there are
  // tokens.
  std::string text_of(const WrittenPrompt& prompt) const;
  std::vector<int64_t> tokens_of(const WrittenPrompt& prompt) const;
};

}  // namespace fullshard
