// SPDX-License-Identifier: Apache-2.0
// Rows of JSON that are more than their text: conversations, prompts with completions.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "fullshard/base/error.h"

namespace fullshard::data {

// Whether a row has `messages`, or `prompt` and `completion`.
bool is_own_document(const nlohmann::ordered_json& row);

// What becomes of such rows where texts are read.
enum class OwnDocuments { as_texts, refused };

// That one is there, and they are refused.
class OwnDocumentFound : public Error {
 public:
  using Error::Error;
};

}  // namespace fullshard::data
