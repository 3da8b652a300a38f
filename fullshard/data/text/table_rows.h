// SPDX-License-Identifier: Apache-2.0
// The rows of a block of a table whose columns have names.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "fullshard/data/text/text_blocks.h"

namespace fullshard::data {

// Whether the block belongs to such a table.
bool has_columns(const TextBlock& block);

// The place of a column in each row; an error that lists the columns if it is missing.
size_t column_of(const TextBlock& block, const std::string& name);

// Calls act(row, number) for each row that is not blank. A row whose number of fields differs from
// the number of columns is an Error of the kind `input` that names file and line.
void for_each_row(const TextBlock& block,
                  const std::function<void(const TableRow& row, int64_t number)>& act);

}  // namespace fullshard::data
