// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/text/table_rows.h"

#include <string_view>

#include "fullshard/data/text/json_records.h"

namespace fullshard::data {

bool has_columns(const TextBlock& block) {
  return block.layout != nullptr && !block.layout->columns.empty();
}

size_t column_of(const TextBlock& block, const std::string& name) {
  const auto column = block.layout->column(name);
  if (!column) {
    fail_as(ErrorKind::input, "{}: has no column '{}'; its first line says {}", block.file->name(),
            name, block.layout->column_names());
  }
  return *column;
}

void for_each_row(const TextBlock& block,
                  const std::function<void(const TableRow& row, int64_t number)>& act) {
  std::string_view rest = block.text;
  for (int64_t number = block.first_line; !rest.empty();) {
    // Rows are whole: the block was cut between rows.
    const auto row = read_table_row(rest, block.layout->separator);
    check(row.has_value(), "{}: is not a whole row", block.place(number));
    const bool is_blank = row->fields.size() == 1 && row->fields[0].empty();
    if (!is_blank && row->fields.size() != block.layout->columns.size()) {
      fail_at(block, number, "has {} fields, but there are {} columns: {}", row->fields.size(),
              block.layout->columns.size(), block.layout->column_names());
    }
    if (!is_blank) act(*row, number);
    number += row->lines;
    rest.remove_prefix(row->bytes);
  }
}

}  // namespace fullshard::data
