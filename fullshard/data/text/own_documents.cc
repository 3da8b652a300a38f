// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/text/own_documents.h"

#include <nlohmann/json.hpp>

namespace fullshard::data {

bool is_own_document(const nlohmann::ordered_json& row) {
  return row.contains("messages") || (row.contains("prompt") && row.contains("completion"));
}

}  // namespace fullshard::data
