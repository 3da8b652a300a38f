// SPDX-License-Identifier: Apache-2.0
// Rows of JSON that have more than a text: conversations, prompts with completions.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "fullshard/base/error.h"

namespace fullshard::data {

// Whether a row has `messages`, or `prompt` and `completion`.
bool is_own_document(const nlohmann::ordered_json& row);

// What happens to such rows when texts are read.
enum class OwnDocuments { as_texts, refused };

// Such a row was found, and they are refused.
class OwnDocumentFound : public Error {
 public:
  using Error::Error;
};

}  // namespace fullshard::data
