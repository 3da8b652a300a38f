// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/documents/class_rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "fullshard/base/printable.h"
#include "fullshard/data/text/json_records.h"

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

}  // namespace

std::vector<TextBlock> class_blocks(const MappedFile& file, int64_t block_bytes) {
  const FileKind kind = kind_of(file.name());
  if (kind != FileKind::table && kind != FileKind::json) {
    fail_as(ErrorKind::input, "{}: is {}, expected texts with labels: a .tsv table or JSON",
            file.name(), name_of(kind));
  }
  return record_blocks(file, kind, block_bytes);
}

std::vector<ClassRow> read_class_rows(const TextBlock& block, const std::string& field) {
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
  for (const std::string& path : list_files(paths)) {
    const MappedFile file(path, Access::sequential);
    for (const TextBlock& block : class_blocks(file)) {
      check_is_text(block);
      for (const ClassRow& row : read_class_rows(block, field)) {
        texts.insert(row.label);
        are_numbered = are_numbered && row.is_numbered;
        if (row.is_numbered) largest = std::max(largest, *whole_number(row.label));
      }
    }
  }
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
