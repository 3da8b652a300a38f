// SPDX-License-Identifier: Apache-2.0
// Rows with a text, or two, and their class.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fullshard/data/text/text_blocks.h"

namespace fullshard::data {

struct ClassRow {
  std::string text;
  std::optional<std::string> text_pair = {};
  std::string label = {};    // as written
  bool is_numbered = false;  // the label is a whole number
  int64_t number = 0;        // its line, or its number in an array, for TextBlock::place
};

// JSON objects with `field`, perhaps text_pair, and label, a text or a whole number; or a table
// with columns of these names, or one of two or three columns without names: text, pair and label.
// Every error names file and line, and is of the kind `input`.
std::vector<ClassRow> read_class_rows(const TextBlock& block, const std::string& field);

// The classes of files, in the order of their numbers: 0 to the largest as LABEL_0, LABEL_1, …
// where all labels are numbers, else the texts, sorted. Fewer than two are an error.
std::vector<std::string> find_classes(const std::vector<std::string>& paths,
                                      const std::string& field);

// The number of a row's label among the classes; an error that lists them if it is not one of them.
int64_t class_of(const ClassRow& row, const std::vector<std::string>& classes,
                 const TextBlock& block);

// Calls act(blocks) for the blocks of tables and JSON, in their order, until it returns false; the
// blocks live as long as the call. Other files are an error.
void for_class_blocks(const std::vector<std::string>& files, const std::string& field,
                      int64_t block_bytes,
                      const std::function<bool(std::span<const TextBlock>)>& act);

}  // namespace fullshard::data
