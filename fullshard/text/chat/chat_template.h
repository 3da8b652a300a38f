// SPDX-License-Identifier: Apache-2.0
// Messages of a conversation as the text that a model was trained on, by the chat_template of its
// tokenizer_config.json. Supports the part of Jinja that published templates use; anything else is
// an Error (kind input) that names it.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard {

namespace text::chat {
struct TemplateNode;
struct RenderedText;
}  // namespace text::chat

struct ChatTemplateOptions {
  bool add_generation_prompt = true;  // appends the beginning of the model's answer
  // The values of these names in the template; empty: not defined.
  std::string bos_token = {};
  std::string eos_token = {};
  std::string unk_token = {};
  std::string sep_token = {};
  std::string pad_token = {};
  std::string cls_token = {};
  std::string mask_token = {};
};

// Immutable after construction; several threads may render it.
class ChatTemplate {
 public:
  explicit ChatTemplate(std::string_view text);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // `messages`: a JSON array of objects with "role" and "content", whose members that are null
  // count as absent, as in transformers; `tools`: what the model may call, as the template expects
  // it. The work is bounded, whatever the template does.
  std::string render(const nlohmann::ordered_json& messages, const ChatTemplateOptions& options,
                     const nlohmann::ordered_json* tools = nullptr) const;

  // The same, with the parts that the template marks as the model's by {% generation %}.
  text::chat::RenderedText render_marked(const nlohmann::ordered_json& messages,
                                         const ChatTemplateOptions& options,
                                         const nlohmann::ordered_json* tools = nullptr) const;
  bool marks_generation() const;

 private:
  std::vector<text::chat::TemplateNode> nodes_;
};

// The template of a folder's tokenizer_config.json or chat_template.jinja, with its special tokens
// in `options`; absent if there is none. Of several templates the one named "default" is used.
struct LoadedChatTemplate {
  ChatTemplate chat_template;
  ChatTemplateOptions options;
};
std::optional<LoadedChatTemplate> load_chat_template(const std::string& folder);

}  // namespace fullshard
