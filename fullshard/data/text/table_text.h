// SPDX-License-Identifier: Apache-2.0
// Tables as text: comma- or tab-separated values, with names of columns in the first row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::data {

struct TableRow {
  std::vector<std::string> fields = {};
  size_t bytes = 0;   // with the line break
  int64_t lines = 1;  // a field in quotes may hold line breaks
};

// The row that `text` begins with. A field that begins with a quote ends with one, and holds two
// for each of its own; in other fields quotes are plain characters. Nothing where a quoted field
// does not end, or is followed by something else than a separator or a line's end.
std::optional<TableRow> read_table_row(std::string_view text, char separator);

// Where the last whole row of `text` ends; 0: there is none.
size_t end_of_last_row(std::string_view text, char separator);

// How the rows of one file are read.
struct TableLayout {
  char separator = '\t';
  // Of the first row; empty: it has no names, and rows are a source and a target without quotes.
  std::vector<std::string> columns = {};

  std::optional<size_t> column(std::string_view name) const;
  std::string column_names() const;  // for messages
};

}  // namespace fullshard::data
