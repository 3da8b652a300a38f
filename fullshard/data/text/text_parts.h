// SPDX-License-Identifier: Apache-2.0
// Text files in parts that can be held: a file as it lies there is mapped whole, a compressed one
// is read on as far as is worked on at once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fullshard/data/text/data_file_kind.h"
#include "fullshard/data/text/text_blocks.h"
#include "fullshard/data/tokens/mapped_file.h"

namespace fullshard::data {

struct TextPart {
  MappedFile file;
  FileKind kind = FileKind::text;
  TableLayout layout = {};
  bool begins = true;  // the first part of its file, the last one
  bool ends = true;
  int64_t first_line = 1;
  int64_t first_byte = 0;    // of all text
  int64_t source_bytes = 0;  // of the file, in progress lines
};

struct TextPartOptions {
  const Tokenizer* tokenizer = nullptr;  // cuts documents; null: each text stays whole
  // Names that make the first row of a .tsv one of names; of a .csv it always is.
  std::vector<std::string> column_names = {};
  int64_t part_bytes = int64_t{64} << 20;  // of compressed files
  // The longest line, row, or document without a place to cut.
  int64_t most_bytes = int64_t{1} << 30;
};

// Calls act(parts) with the parts of all files in their order, until it says false: files that are
// mapped together, compressed ones part by part. Errors are of the kind `input`.
void for_text_parts(const std::vector<std::string>& files, const TextPartOptions& options,
                    const std::function<bool(std::span<const TextPart>)>& act);

// The first bytes of a file's text.
std::string beginning_of_text(const std::string& path, size_t bytes);

// The blocks of a part (without a tokenizer a text is one), with lines and places counted from the
// beginning of its file.
std::vector<TextBlock> blocks_of_part(const TextPart& part, const Tokenizer* tokenizer,
                                      int64_t block_bytes);

}  // namespace fullshard::data
