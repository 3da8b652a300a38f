// SPDX-License-Identifier: Apache-2.0
// Text files cut into blocks that can be processed separately.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/data/text/data_file_kind.h"
#include "fullshard/data/text/table_text.h"
#include "fullshard/data/tokens/mapped_file.h"
#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard::data {

// Points into a mapped file, which must outlive it.
struct TextBlock {
  const MappedFile* file = nullptr;
  FileKind kind = FileKind::text;
  std::string_view text = {};
  int64_t first_line = 1;
  bool is_array = false;        // JSON: one array of records, not one record per line
  bool begins_document = true;  // text: the block is the first, or the last, of its document
  bool ends_document = true;
  int64_t file_offset = 0;              // of the mapped bytes in the whole text
  const TableLayout* layout = nullptr;  // of a table

  // "corpus.jsonl:12"; for an array, where lines mean nothing, "corpus.json: record 12".
  std::string place(int64_t line_or_record) const;
};

// Throws Error of the kind `input` that names the byte where the file is not text: not UTF-8, or a
// zero.
void check_is_text(const TextBlock& block);

// The size of a block, approximately.
inline constexpr int64_t kBlockBytes = int64_t{1} << 20;

// JSON and tables without names of columns: whole lines; an array is one block. An empty file is an
// error.
std::vector<TextBlock> record_blocks(const MappedFile& file, FileKind kind,
                                     int64_t block_bytes = kBlockBytes);

// Tables with names of columns: whole rows, without the first row where the block `begins`.
std::vector<TextBlock> row_blocks(const MappedFile& file, FileKind kind, const TableLayout& layout,
                                  bool begins, int64_t block_bytes = kBlockBytes);

// The file as one document, cut only where the tokens stay the same: after a line break between two
// visible characters, where a comparison of the surroundings shows that the cut does not change the
// tokens.
std::vector<TextBlock> document_blocks(const MappedFile& file, const Tokenizer& tokenizer,
                                       int64_t block_bytes = kBlockBytes);

// The file as one document in one block, which may be empty.
TextBlock whole_document(const MappedFile& file);

// Where a part of a document may end so that the tokens stay the same, as late as possible, in the
// second half; 0: nowhere.
size_t document_cut(std::string_view text, const Tokenizer& tokenizer);

}  // namespace fullshard::data
