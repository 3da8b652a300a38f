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
  size_t bytes = 0;   // including the line break
  int64_t lines = 1;  // a field in quotes may hold line breaks
};

// Reads the row at the beginning of `text`. A field that begins with a quote ends with one, and has
// two for each quote inside; in other fields quotes are plain characters. Absent if a quoted field
// does not end, or is followed by anything but a separator or the end of the line.
std::optional<TableRow> read_table_row(std::string_view text, char separator);

// Where the last whole row of `text` ends; 0: there is none.
size_t end_of_last_row(std::string_view text, char separator);

// How the rows of one file are read.
struct TableLayout {
  char separator = '\t';
  // The names in the first row; empty: it has none, and rows are a source and a target without
  // quotes.
  std::vector<std::string> columns = {};

  std::optional<size_t> column(std::string_view name) const;
  std::string column_names() const;  // for messages
};

}  // namespace fullshard::data
