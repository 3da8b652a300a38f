// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/documents/class_rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "fullshard/base/printable.h"
#include "fullshard/data/text/json_records.h"
#include "fullshard/data/text/table_rows.h"
#include "fullshard/data/text/text_parts.h"

namespace fullshard::data {
namespace {

constexpr int64_t kMostClasses = 100'000;

std::optional<int64_t> whole_number(const std::string& text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

void take_label(const TextBlock& block, const std::string& label, ClassRow& row) {
  row.label = label;
  const auto value = whole_number(label);
  row.is_numbered = value.has_value();
  if (label.empty()) fail_at(block, row.number, "has an empty label");
  if (value && (*value < 0 || *value >= kMostClasses)) {
    fail_at(block, row.number, "has the label {}, expected a number from 0 to {}", *value,
            kMostClasses - 1);
  }
}

ClassRow class_row_in(const TextBlock& block, int64_t number, const Json& object,
                      const std::string& field) {
  ClassRow row{.text = string_in(block, number, object, field), .number = number};
  if (object.contains("text_pair") && !object["text_pair"].is_null()) {
    row.text_pair = string_in(block, number, object, "text_pair");
  }
  const auto label = object.find("label");
  if (label != object.end() && label->is_number_integer()) {
    take_label(block, label->dump(), row);
  } else {
    take_label(block, string_in(block, number, object, "label"), row);
  }
  return row;
}

std::vector<ClassRow> rows_with_columns(const TextBlock& block, const std::string& field) {
  const size_t text = column_of(block, field), label = column_of(block, "label");
  const auto pair = block.layout->column("text_pair");
  std::vector<ClassRow> rows;
  for_each_row(block, [&](const TableRow& found, int64_t number) {
    ClassRow row{.text = found.fields[text], .number = number};
    // Other programs write an empty text for a pair that is missing.
    if (pair && !found.fields[*pair].empty()) row.text_pair = found.fields[*pair];
    take_label(block, found.fields[label], row);
    rows.push_back(std::move(row));
  });
  return rows;
}

ClassRow class_row_of(const TextBlock& block, int64_t number, std::string_view line) {
  std::vector<std::string> columns(1);
  for (const char letter : line) {
    if (letter == '\t') {
      columns.emplace_back();
    } else {
      columns.back() += letter;
    }
  }
  if (columns.size() != 2 && columns.size() != 3) {
    fail_at(block, number, "has {} column{}, expected a text, perhaps a second one, and a label",
            columns.size(), columns.size() == 1 ? "" : "s");
  }
  ClassRow row{.text = columns[0], .number = number};
  if (columns.size() == 3) row.text_pair = columns[1];
  take_label(block, columns.back(), row);
  return row;
}

void check_have_labels(const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    const FileKind kind = kind_of(path);
    if (kind != FileKind::text && kind != FileKind::tokens) continue;
    fail_as(ErrorKind::input, "{}: is {}, expected texts with labels: a table (.tsv, .csv) or JSON",
            path, name_of(kind));
  }
}

}  // namespace

void for_class_blocks(const std::vector<std::string>& files, const std::string& field,
                      int64_t block_bytes,
                      const std::function<bool(std::span<const TextBlock>)>& act) {
  check_have_labels(files);
  const TextPartOptions how{.column_names = {field, "label"}};
  for_text_parts(files, how, [&](std::span<const TextPart> parts) {
    std::vector<TextBlock> blocks;
    for (const TextPart& part : parts) {
      const auto found = blocks_of_part(part, /*tokenizer=*/nullptr, block_bytes);
      blocks.insert(blocks.end(), found.begin(), found.end());
    }
    return act(blocks);
  });
}

std::vector<ClassRow> read_class_rows(const TextBlock& block, const std::string& field) {
  if (has_columns(block)) return rows_with_columns(block, field);
  std::vector<ClassRow> rows;
  if (block.kind == FileKind::json) {
    for_each_object(block, [&](const Json& object, int64_t number) {
      rows.push_back(class_row_in(block, number, object, field));
      return true;
    });
  } else {
    for_each_line(block, [&](std::string_view line, int64_t number) {
      rows.push_back(class_row_of(block, number, line));
      return true;
    });
  }
  return rows;
}

std::vector<std::string> find_classes(const std::vector<std::string>& paths,
                                      const std::string& field) {
  std::set<std::string> texts;
  int64_t largest = -1;
  bool are_numbered = true;
  for_class_blocks(list_files(paths), field, kBlockBytes, [&](std::span<const TextBlock> blocks) {
    for (const TextBlock& block : blocks) {
      check_is_text(block);
      for (const ClassRow& row : read_class_rows(block, field)) {
        texts.insert(row.label);
        are_numbered = are_numbered && row.is_numbered;
        if (row.is_numbered) largest = std::max(largest, *whole_number(row.label));
      }
    }
    return true;
  });
  std::vector<std::string> classes(texts.begin(), texts.end());
  if (are_numbered) {
    classes.clear();
    for (int64_t i = 0; i <= largest; ++i) classes.push_back(fmt::format("LABEL_{}", i));
  }
  if (classes.size() < 2) {
    fail_as(ErrorKind::input, "{}: {} different label{}, expected at least two classes", paths[0],
            classes.size(), classes.size() == 1 ? "" : "s");
  }
  return classes;
}

int64_t class_of(const ClassRow& row, const std::vector<std::string>& classes,
                 const TextBlock& block) {
  const auto found = std::ranges::find(classes, row.label);
  if (found != classes.end()) return found - classes.begin();
  if (row.is_numbered && *whole_number(row.label) < std::ssize(classes)) {
    return *whole_number(row.label);
  }
  constexpr size_t kMostShown = 10;
  const std::vector<std::string> shown(
      classes.begin(),
      classes.begin() + static_cast<std::ptrdiff_t>(std::min(kMostShown, classes.size())));
  fail_at(block, row.number, "has the label '{}', but the model's classes are {}{}",
          base::printable(row.label, 100), fmt::join(shown, ", "),
          shown.size() < classes.size() ? ", \u2026" : "");
}

}  // namespace fullshard::data
