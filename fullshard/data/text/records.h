// SPDX-License-Identifier: Apache-2.0
// What a block of JSON or of a table holds: texts, or pairs of texts.
#pragma once

#include <string>
#include <vector>

#include "fullshard/data/text/own_documents.h"
#include "fullshard/data/text/text_blocks.h"

namespace fullshard::data {

struct TextRecord {
  std::string text;
  int64_t number;  // its line, or its number in an array, for TextBlock::place
};

struct PairRecord {
  std::string source;
  std::string target;
  int64_t number;
};

struct PairLanguages {
  std::string source = {};
  std::string target = {};
};

// Every error names file and line, and is of the kind `input`. Blank lines are skipped. Reads JSON
// objects with a string in `field`, or tables with such a column. Rows that are refused are an
// OwnDocumentFound.
std::vector<TextRecord> read_texts(const TextBlock& block, const std::string& field,
                                   OwnDocuments own = OwnDocuments::as_texts);
// Reads two columns with a tab between them; or JSON objects {"src", "tgt"}, {"source", "target"}
// or {"translation": {language: text, …}}; or tables whose columns have these names, or those of
// the languages.
std::vector<PairRecord> read_pairs(const TextBlock& block, const PairLanguages& languages);

}  // namespace fullshard::data
