// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/prompt_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/base/json_text.h"
#include "fullshard/base/text_file.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard {
namespace {

using nlohmann::ordered_json;

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// Without the mark that some editors put first.
std::string_view without_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

std::vector<int64_t> tokens_in(const ordered_json& value, const std::string& place) {
  std::vector<int64_t> tokens;
  for (const auto& token : value.is_array() ? value : ordered_json::array()) {
    if (token.is_number_integer()) tokens.push_back(token.get<int64_t>());
  }
  if (!value.is_array() || tokens.size() != value.size() || tokens.empty()) {
    fail_as(ErrorKind::input, "{}: \"tokens\" is no list of token ids", place);
  }
  return tokens;
}

void check_messages(const ordered_json& messages, const std::string& place) {
  bool is_right = messages.is_array() && !messages.empty();
  for (const auto& message : is_right ? messages : ordered_json::array()) {
    is_right =
        is_right && message.is_object() && message.contains("role") && message["role"].is_string();
  }
  if (!is_right) {
    fail_as(ErrorKind::input,
            "{}: \"messages\" is no list of objects with \"role\" and \"content\"", place);
  }
}

// As the template expects them: functions that the model may call.
ordered_json tools_in(const ordered_json& object, const std::string& place) {
  const auto found = object.find("tools");
  if (found == object.end() || found->is_null()) return nullptr;
  const bool is_right = found->is_array() && std::ranges::all_of(*found, [](const auto& tool) {
                          return tool.is_object();
                        });
  if (!is_right) fail_as(ErrorKind::input, "{}: \"tools\" is no list of objects", place);
  return *found;
}

WrittenPrompt parse_object(std::string_view line, const std::string& place) {
  ordered_json object;
  try {
    object = base::parse_json<ordered_json>(line);
  } catch (const base::JsonError& error) {
    fail_as(ErrorKind::input, "{}: {}", place, error.what());
  }
  WrittenPrompt prompt{.place = place};
  int num_kinds = 0;
  for (const char* key : {"prompt", "messages", "tokens"}) {
    num_kinds += static_cast<int>(object.is_object() && object.contains(key));
  }
  if (num_kinds != 1) {
    fail_as(ErrorKind::input,
            "{}: expected an object with one of \"prompt\", \"messages\" and \"tokens\"", place);
  }
  if (object.contains("tokens")) {
    prompt.tokens = tokens_in(object["tokens"], place);
  } else if (object.contains("messages")) {
    check_messages(object["messages"], place);
    prompt.messages = object["messages"];
    prompt.tools = tools_in(object, place);
  } else if (object["prompt"].is_string()) {
    prompt.text = object["prompt"].get<std::string>();
  } else {
    fail_as(ErrorKind::input, "{}: \"prompt\" is no text", place);
  }
  return prompt;
}

}  // namespace

void check_prompt_is_text(std::string_view text, const std::string& place) {
  const size_t valid = text::valid_utf8_bytes(text);
  if (valid == text.size()) return;
  fail_as(ErrorKind::input,
          "{}: byte {} is 0x{:02x}, which is no UTF-8; prompts are read as UTF-8: convert them, or "
          "give \"tokens\"",
          place, valid, static_cast<unsigned char>(text[valid]));
}

std::vector<WrittenPrompt> parse_prompts(std::string_view text, PromptFormat format,
                                         const std::string& where) {
  std::vector<WrittenPrompt> prompts;
  text = without_mark(text);
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (is_blank(line)) continue;
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string place = fmt::format("{}, line {}", where, number);
    check_prompt_is_text(line, place);
    if (format == PromptFormat::json_lines) {
      prompts.push_back(parse_object(line, place));
    } else {
      prompts.push_back({.text = std::string(line), .place = place});
    }
  }
  if (prompts.empty()) fail_as(ErrorKind::input, "{}: holds no prompt", where);
  return prompts;
}

std::vector<WrittenPrompt> read_prompts(const std::string& path) {
  if (path.ends_with(".json")) {
    fail_as(ErrorKind::input,
            "{}: ends in .json, expected .jsonl or .ndjson with an object per line, or lines of "
            "text under another ending; write the prompts so",
            path);
  }
  const bool is_json = path.ends_with(".jsonl") || path.ends_with(".ndjson");
  return parse_prompts(base::read_text_file(path, base::kMostTextBytes, base::TextFrom::anything),
                       is_json ? PromptFormat::json_lines : PromptFormat::lines, path);
}

std::vector<WrittenPrompt> read_prompt_input(const std::string& path) {
  const std::string text =
      base::read_text_file(path, base::kMostTextBytes, base::TextFrom::anything);
  const std::string_view content = without_mark(text);
  const size_t first = content.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && content[first] == '{';
  return parse_prompts(text, is_json ? PromptFormat::json_lines : PromptFormat::lines,
                       "standard input");
}

std::string PromptEncoder::text_of(const WrittenPrompt& prompt) const {
  if (prompt.messages.is_null()) return prompt.text;
  if (chat == nullptr) {
    fail_as(ErrorKind::input,
            "{}: has messages, but the tokenizer has no chat_template; give the text as \"prompt\"",
            prompt.place);
  }
  try {
    return chat->chat_template.render(prompt.messages, chat->options,
                                      prompt.tools.is_null() ? nullptr : &prompt.tools);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", prompt.place, error.what()), error.kind());
  }
}

std::vector<int64_t> PromptEncoder::tokens_of(const WrittenPrompt& prompt) const {
  if (!prompt.tokens.empty()) return prompt.tokens;
  if (tokenizer == nullptr) {
    fail_as(ErrorKind::input,
            "{}: is a text, but the model's folder has no tokenizer; name one with --tokenizer, or "
            "give \"tokens\"",
            prompt.place);
  }
  // A template writes the special tokens itself.
  const bool adds_special = prompt.messages.is_null();
  const std::string text = text_of(prompt);
  const auto encoded = tokenizer->encode(text, adds_special);
  std::vector<int64_t> tokens(encoded.begin(), encoded.end());
  // Some tokenizers end every text, which would be the end of the answer too.
  const auto eos = tokenizer->eos();
  const bool has_end = adds_special && eos && !tokens.empty() && tokens.back() == *eos;
  if (has_end && !ends_prompts) {
    const auto plain = tokenizer->encode(text, false);
    if (plain.empty() || plain.back() != *eos) tokens.pop_back();
  }
  if (tokens.empty()) {
    const auto first = tokenizer->bos() ? tokenizer->bos() : tokenizer->eos();
    if (first) tokens.push_back(*first);
  }
  return tokens;
}

}  // namespace fullshard
