// SPDX-License-Identifier: Apache-2.0
// Text files in parts that fit in memory: a plain file is mapped whole, a compressed one is read as
// far as is processed at once.
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
  bool begins = true;  // the first, or the last, part of its file
  bool ends = true;
  int64_t first_line = 1;
  int64_t first_byte = 0;    // in the whole text
  int64_t source_bytes = 0;  // of the file, for progress lines
};

struct TextPartOptions {
  const Tokenizer* tokenizer = nullptr;  // cuts documents; null: each text stays whole
  // If one of these is in the first row of a .tsv, that row has names; the first row of a .csv
  // always does.
  std::vector<std::string> column_names = {};
  int64_t part_bytes = int64_t{64} << 20;  // for compressed files
  // The longest line, row, or document that has no place to cut.
  int64_t most_bytes = int64_t{1} << 30;
};

// Calls act(parts) with the parts of all files in their order, until it returns false: uncompressed
// files mapped together, compressed ones part by part. Errors are of the kind `input`.
void for_text_parts(const std::vector<std::string>& files, const TextPartOptions& options,
                    const std::function<bool(std::span<const TextPart>)>& act);

// The first bytes of a file's text.
std::string beginning_of_text(const std::string& path, size_t bytes);

// The blocks of a part (without a tokenizer a text is one block), with lines and places counted
// from the beginning of its file.
std::vector<TextBlock> blocks_of_part(const TextPart& part, const Tokenizer* tokenizer,
                                      int64_t block_bytes);

}  // namespace fullshard::data
