// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/documents/document_rows.h"

#include <utility>

#include "fullshard/data/text/own_documents.h"

namespace fullshard::data {
namespace {

void check_messages(const TextBlock& block, int64_t number, const Json& messages,
                    const char* field) {
  if (!messages.is_array() || messages.empty()) {
    fail_at(block, number, "field '{}' is not a list of messages", field);
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    const bool has_role =
        message.is_object() && message.contains("role") && message["role"].is_string();
    if (!has_role) {
      fail_at(block, number,
              "message {} of '{}' is not an object with a \"role\" and a \"content\"", i + 1,
              field);
    }
  }
}

DocumentRow completion_in(const TextBlock& block, int64_t number, const Json& object) {
  DocumentRow row{.kind = RowKind::completion, .number = number};
  const Json &prompt = object["prompt"], &completion = object["completion"];
  if (prompt.is_string() && completion.is_string()) {
    row.text = prompt.get<std::string>();
    row.completion = completion.get<std::string>();
    return row;
  }
  if (!prompt.is_array() || !completion.is_array()) {
    fail_at(block, number,
            "field 'prompt' is {} and 'completion' is {}; expected two texts, or two lists of "
            "messages",
            prompt.type_name(), completion.type_name());
  }
  check_messages(block, number, prompt, "prompt");
  check_messages(block, number, completion, "completion");
  row.kind = RowKind::conversation;
  row.messages = prompt;
  row.num_prompt_messages = prompt.size();
  for (const Json& message : completion) row.messages.push_back(message);
  return row;
}

DocumentRow row_in(const TextBlock& block, int64_t number, const Json& object,
                   const std::string& field) {
  DocumentRow row{.number = number};
  if (object.contains("messages")) {
    row.kind = RowKind::conversation;
    check_messages(block, number, object["messages"], "messages");
    row.messages = object["messages"];
  } else if (is_own_document(object)) {
    row = completion_in(block, number, object);
  } else if (object.contains(field)) {
    row.text = string_in(block, number, object, field);
    return row;
  } else {
    fail_at(
        block, number,
        "is not a document; expected the field messages, the fields prompt and completion, or the "
        "field {}; its fields: {}",
        field, names_in(object));
  }
  if (object.contains("tools")) row.tools = object["tools"];
  return row;
}

}  // namespace

std::vector<DocumentRow> read_rows(const TextBlock& block, const std::string& field) {
  std::vector<DocumentRow> rows;
  for_each_object(block, [&](const Json& object, int64_t number) {
    rows.push_back(row_in(block, number, object, field));
    return true;
  });
  return rows;
}

}  // namespace fullshard::data
