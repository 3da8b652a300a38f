// SPDX-License-Identifier: Apache-2.0
// Rows as tokens, and which of these are learnt. See docs/data.md, "Conversations and completions".
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/data/documents/document_rows.h"
#include "fullshard/data/documents/loss_on.h"
#include "fullshard/text/chat/chat_template.h"
#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard::data {

struct EncodedDocument {
  std::vector<int32_t> ids = {};
  std::vector<bool> is_learnt = {};  // for each id
  RowKind kind = RowKind::text;
};

struct DocumentEncoderOptions {
  LossOn loss_on = LossOn::completions_if_any;
  std::string chat_folder = {};  // has the chat template; read when a row needs it
  int64_t vocabulary = 0;        // of the model; 0: not checked
};

// Thread-safe. `tokenizer` outlives it. Errors are of the kind `input` and begin with the place of
// the row.
class DocumentEncoder {
 public:
  DocumentEncoder(const Tokenizer& tokenizer, DocumentEncoderOptions options)
      : tokenizer_(tokenizer), options_(std::move(options)) {}

  EncodedDocument encode(const DocumentRow& row, const std::string& place) const;

 private:
  using Ids = std::vector<int32_t>;
  EncodedDocument encode_text(const DocumentRow& row) const;
  EncodedDocument encode_completion(const DocumentRow& row) const;
  EncodedDocument encode_conversation(const DocumentRow& row) const;
  // Where the answer to the first `count` messages begins.
  size_t begin_of_answer(const DocumentRow& row, size_t count, const std::string& text,
                         const Ids& ids) const;
  // Where the first `count` messages end.
  size_t end_of_turn(const DocumentRow& row, size_t count, const std::string& text,
                     const Ids& ids) const;
  void mark_turns(const DocumentRow& row, const std::string& text, EncodedDocument& document) const;
  std::string rendered(const DocumentRow& row, size_t count, bool opens_answer) const;
  // Encodes with what the family puts before a text, without what it puts after it.
  Ids open_ids(const std::string& text) const;
  const LoadedChatTemplate& chat() const;
  void check_vocabulary(const EncodedDocument& document) const;

  const Tokenizer& tokenizer_;
  DocumentEncoderOptions options_;
  mutable std::once_flag once_;
  mutable std::optional<LoadedChatTemplate> chat_;
};

}  // namespace fullshard::data
