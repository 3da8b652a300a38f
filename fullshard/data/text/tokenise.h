// SPDX-License-Identifier: Apache-2.0
// Tokenises text files once, on every core.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/data/text/own_documents.h"
#include "fullshard/data/text/text_blocks.h"
#include "fullshard/data/tokens/token_writer.h"

namespace fullshard::data {

struct TokeniseOptions {
  std::vector<std::string> files = {};                  // text, JSON or tables, also compressed
  std::string field = "text";                           // of JSON objects
  std::optional<int32_t> separator = {};                // put after every document
  OwnDocuments own_documents = OwnDocuments::as_texts;  // rows of JSON that are documents
  int64_t vocabulary = 0;                               // of the model; 0: not checked
  int64_t enough_tokens = 0;                            // stop after this many; 0: all
  int num_threads = 0;                                  // 0: as many as there are allowed cores
  int64_t block_bytes = kBlockBytes;
  int64_t part_bytes = int64_t{64} << 20;  // of a compressed file's text, in memory at once
  std::function<void(int64_t done, int64_t total)> progress = {};  // bytes of text
};

// A text file is one document, and so is each JSON object or row; empty ones leave nothing. The
// tokens do not depend on the number of threads. Errors are of the kind `input`.
void tokenise(const TokeniseOptions& options, const Tokenizer& tokenizer, TokenWriter& writer);

}  // namespace fullshard::data
