// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/chat/chat_template.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/json_text.h"
#include "fullshard/base/text_file.h"
#include "fullshard/text/chat/template_node.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard {
namespace {

using nlohmann::ordered_json;

std::optional<std::string> read_if_there(const std::string& path) {
  return base::is_file(path) ? base::find_text_file(path) : std::nullopt;
}

void check_is_text(std::string_view text, const std::string& path) {
  const size_t valid = text::valid_utf8_bytes(text);
  if (valid == text.size()) return;
  fail_as(ErrorKind::input, "{}: byte {} is 0x{:02x}, which is not UTF-8; write the template in it",
          path, valid, static_cast<unsigned char>(text[valid]));
}

// Empty if there is no such file.
ordered_json read_object(const std::string& path) {
  const auto text = read_if_there(path);
  if (!text) return ordered_json::object();
  ordered_json object;
  try {
    object = base::parse_json<ordered_json>(*text);
  } catch (const base::JsonError& error) {
    fail_as(ErrorKind::input, "{}: {}", path, error.what());
  }
  if (!object.is_object()) fail_as(ErrorKind::input, "{}: expected a JSON object", path);
  return object;
}

// A token is its text, or an object with the text under "content".
std::string token_text(const ordered_json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object() && found->contains("content") && (*found)["content"].is_string()) {
    return (*found)["content"].get<std::string>();
  }
  return {};
}

// A text, or a list of {"name", "template"}.
std::optional<std::string> template_text(const ordered_json& config, const std::string& where) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array()) {
    for (const auto& one : *found) {
      if (one.is_object() && one.value("name", "") == "default" && one.contains("template") &&
          one["template"].is_string()) {
        return one["template"].get<std::string>();
      }
    }
  }
  fail_as(ErrorKind::input,
          "{}: chat_template is neither a text nor a list with one that is named \"default\"",
          where);
}

ChatTemplateOptions special_tokens_in(const std::string& folder, const ordered_json& config) {
  // As in transformers: older folders have them in a separate file; the entries of the newer one
  // win.
  ordered_json tokens = config;
  if (!config.contains("added_tokens_decoder")) {
    tokens.update(read_object(folder + "/special_tokens_map.json"));
  }
  return {.bos_token = token_text(tokens, "bos_token"),
          .eos_token = token_text(tokens, "eos_token"),
          .unk_token = token_text(tokens, "unk_token"),
          .sep_token = token_text(tokens, "sep_token"),
          .pad_token = token_text(tokens, "pad_token"),
          .cls_token = token_text(tokens, "cls_token"),
          .mask_token = token_text(tokens, "mask_token")};
}

// Some programs write "tool_calls": null, but templates ask whether the key is there.
ordered_json without_nulls(ordered_json messages) {
  if (!messages.is_array()) return messages;
  for (ordered_json& message : messages) {
    if (!message.is_object()) continue;
    ordered_json kept = ordered_json::object();
    for (const auto& [key, value] : message.items()) {
      if (!value.is_null()) kept[key] = value;
    }
    message = std::move(kept);
  }
  return messages;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view text) : nodes_(text::chat::parse_template(text)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

text::chat::RenderedText ChatTemplate::render_marked(const ordered_json& messages,
                                                     const ChatTemplateOptions& options,
                                                     const ordered_json* tools) const {
  using text::chat::Value;
  text::chat::RenderState state;
  text::chat::TemplateScope scope(state);
  scope.set("messages", Value::of_json(without_nulls(messages)));
  scope.set("tools", tools == nullptr ? Value(nullptr) : Value::of_json(*tools));
  scope.set("documents", nullptr);
  scope.set("add_generation_prompt", options.add_generation_prompt);
  const auto set_token = [&](const char* name, const std::string& token) {
    if (!token.empty()) scope.set(name, token);
  };
  set_token("bos_token", options.bos_token);
  set_token("eos_token", options.eos_token);
  set_token("unk_token", options.unk_token);
  set_token("sep_token", options.sep_token);
  set_token("pad_token", options.pad_token);
  set_token("cls_token", options.cls_token);
  set_token("mask_token", options.mask_token);
  return text::chat::render_nodes(nodes_, scope);
}

std::string ChatTemplate::render(const ordered_json& messages, const ChatTemplateOptions& options,
                                 const ordered_json* tools) const {
  return render_marked(messages, options, tools).text;
}

bool ChatTemplate::marks_generation() const { return text::chat::marks_generation(nodes_); }

std::optional<LoadedChatTemplate> load_chat_template(const std::string& folder) {
  const std::string path = folder + "/tokenizer_config.json";
  const ordered_json config = read_object(path);
  const std::string own_file = folder + "/chat_template.jinja";
  auto text = read_if_there(own_file);
  if (text) check_is_text(*text, own_file);
  if (!text) text = template_text(config, path);
  if (!text) return std::nullopt;
  try {
    return LoadedChatTemplate{ChatTemplate(*text), special_tokens_in(folder, config)};
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", folder, error.what()), error.kind());
  }
}

}  // namespace fullshard
