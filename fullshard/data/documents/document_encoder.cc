// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/documents/document_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/data/documents/token_border.h"
#include "fullshard/text/chat/template_node.h"

namespace fullshard::data {
namespace {

// The most tokens that a template may put after the last message only, as an end of the whole text.
constexpr size_t kMostClosingTokens = 2;

Json first_messages(const DocumentRow& row, size_t count) {
  Json messages = Json::array();
  for (size_t i = 0; i < count; ++i) messages.push_back(row.messages[i]);
  return messages;
}

bool is_answer(const Json& message) { return message["role"].get<std::string>() == "assistant"; }

}  // namespace

const LoadedChatTemplate& DocumentEncoder::chat() const {
  std::call_once(once_, [&] {
    if (!options_.chat_folder.empty()) chat_ = load_chat_template(options_.chat_folder);
  });
  if (!chat_) {
    fail_as(ErrorKind::input,
            "has messages, but the tokenizer has no chat template; put one next to it as "
            "chat_template.jinja, or give texts as prompt and completion");
  }
  return *chat_;
}

DocumentEncoder::Ids DocumentEncoder::open_ids(const std::string& text) const {
  Ids ids = tokenizer_.encode(text, /*special=*/true);
  const auto eos = tokenizer_.eos();
  if (eos && !ids.empty() && ids.back() == *eos) {
    const Ids plain = tokenizer_.encode(text, /*special=*/false);
    if (plain.empty() || plain.back() != *eos) ids.pop_back();
  }
  return ids;
}

EncodedDocument DocumentEncoder::encode(const DocumentRow& row, const std::string& place) const {
  EncodedDocument document;
  try {
    switch (row.kind) {
      case RowKind::text:
        document = encode_text(row);
        break;
      case RowKind::completion:
        document = encode_completion(row);
        break;
      case RowKind::conversation:
        document = encode_conversation(row);
        break;
    }
    document.kind = row.kind;
    if (options_.loss_on == LossOn::all) document.is_learnt.assign(document.ids.size(), true);
    check_vocabulary(document);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", place, error.what()), error.kind());
  }
  return document;
}

EncodedDocument DocumentEncoder::encode_text(const DocumentRow& row) const {
  if (options_.loss_on == LossOn::completions) {
    fail_as(ErrorKind::input,
            "is a text without a completion, but the loss is on completions only; use "
            "--loss-on all");
  }
  EncodedDocument document{.ids = row.text.empty() ? Ids() : open_ids(row.text)};
  const auto eos = tokenizer_.eos();
  if (eos && !document.ids.empty() && document.ids.back() != *eos) document.ids.push_back(*eos);
  document.is_learnt.assign(document.ids.size(), true);
  return document;
}

EncodedDocument DocumentEncoder::encode_completion(const DocumentRow& row) const {
  EncodedDocument document{.ids = open_ids(row.text + row.completion)};
  const size_t begin = token_at(Border::begin, open_ids(row.text), document.ids, tokenizer_);
  const auto eos = tokenizer_.eos();
  if (eos && (document.ids.empty() || document.ids.back() != *eos)) document.ids.push_back(*eos);
  document.is_learnt.assign(document.ids.size(), false);
  std::fill(document.is_learnt.begin() + static_cast<std::ptrdiff_t>(begin),
            document.is_learnt.end(), true);
  return document;
}

std::string DocumentEncoder::rendered(const DocumentRow& row, size_t count,
                                      bool opens_answer) const {
  ChatTemplateOptions options = chat().options;
  options.add_generation_prompt = opens_answer;
  return chat().chat_template.render(first_messages(row, count), options,
                                     row.tools.is_null() ? nullptr : &row.tools);
}

size_t DocumentEncoder::begin_of_answer(const DocumentRow& row, size_t count,
                                        const std::string& text, const Ids& ids) const {
  const std::string opened = rendered(row, count, /*opens_answer=*/true);
  const Ids before = tokenizer_.encode(opened, false);
  if (text.starts_with(opened)) return token_at(Border::begin, before, ids, tokenizer_);
  // The start of a new answer may be longer than that of finished ones, for instance by an empty
  // thought; the text before it must be the same.
  const size_t end = count == 0 ? 0 : end_of_turn(row, count, text, ids);
  return std::max(num_common(before, ids), end);
}

size_t DocumentEncoder::end_of_turn(const DocumentRow& row, size_t count, const std::string& text,
                                    const Ids& ids) const {
  if (count == row.messages.size()) return ids.size();
  const std::string closed = rendered(row, count, /*opens_answer=*/false);
  const Ids before = tokenizer_.encode(closed, false);
  if (text.starts_with(closed)) return token_at(Border::end, before, ids, tokenizer_);
  const size_t common = num_common(before, ids);
  if (common + kMostClosingTokens < before.size()) {
    fail_as(
        ErrorKind::input,
        "the chat template writes message {} differently once more messages follow, so its tokens "
        "cannot be found; give each answer in a row of its own, or mark answers in the template "
        "by {{% generation %}}",
        count);
  }
  return common;
}

void DocumentEncoder::mark_turns(const DocumentRow& row, const std::string& text,
                                 EncodedDocument& document) const {
  size_t last = 0;
  for (size_t i = 0; i < row.messages.size(); ++i) {
    if (!is_answer(row.messages[i])) continue;
    const size_t begin = std::max(begin_of_answer(row, i, text, document.ids), last);
    last = std::max(end_of_turn(row, i + 1, text, document.ids), begin);
    std::fill(document.is_learnt.begin() + static_cast<std::ptrdiff_t>(begin),
              document.is_learnt.begin() + static_cast<std::ptrdiff_t>(last), true);
  }
}

EncodedDocument DocumentEncoder::encode_conversation(const DocumentRow& row) const {
  ChatTemplateOptions options = chat().options;
  options.add_generation_prompt = false;
  const auto whole = chat().chat_template.render_marked(row.messages, options,
                                                        row.tools.is_null() ? nullptr : &row.tools);
  EncodedDocument document{.ids = tokenizer_.encode(whole.text, /*special=*/false)};
  document.is_learnt.assign(document.ids.size(), false);
  if (options_.loss_on == LossOn::all) return document;
  const auto learn = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) document.is_learnt[i] = true;
  };
  if (row.num_prompt_messages > 0) {
    learn(begin_of_answer(row, row.num_prompt_messages, whole.text, document.ids),
          document.ids.size());
  } else if (chat().chat_template.marks_generation()) {
    for (const auto& [begin, end] : whole.generated) {
      const auto at = [&](Border border, size_t place) {
        return token_at(border, tokenizer_.encode(whole.text.substr(0, place), false), document.ids,
                        tokenizer_);
      };
      learn(at(Border::begin, begin), at(Border::end, end));
    }
  } else {
    mark_turns(row, whole.text, document);
  }
  return document;
}

void DocumentEncoder::check_vocabulary(const EncodedDocument& document) const {
  if (options_.vocabulary == 0 || document.ids.empty()) return;
  const int32_t most = std::ranges::max(document.ids);
  if (most >= options_.vocabulary) {
    fail_as(
        ErrorKind::input,
        "the tokenizer gives token {}, beyond the model's vocabulary of {}; use the model's own "
        "tokenizer",
        most, options_.vocabulary);
  }
}

}  // namespace fullshard::data
