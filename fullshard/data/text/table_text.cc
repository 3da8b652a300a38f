// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/text/table_text.h"

#include <algorithm>

#include "fullshard/base/printable.h"

namespace fullshard::data {
namespace {

// The length in bytes of the line break at `at`, 0 at the end of the text; absent elsewhere.
std::optional<size_t> break_at(std::string_view text, size_t at) {
  if (at == text.size()) return 0;
  if (text[at] == '\n') return 1;
  if (text[at] != '\r') return std::nullopt;
  if (at + 1 == text.size()) return 1;
  return text[at + 1] == '\n' ? std::optional<size_t>(2) : std::nullopt;
}

class RowReader {
 public:
  RowReader(std::string_view text, char separator) : text_(text), separator_(separator) {}

  std::optional<TableRow> read() {
    while (true) {
      const bool is_quoted = at_ < text_.size() && text_[at_] == '"';
      if (is_quoted ? !read_quoted() : !read_plain()) return std::nullopt;
      if (const auto bytes = break_at(text_, at_)) {
        row_.bytes = at_ + *bytes;
        return std::move(row_);
      }
      if (text_[at_] != separator_) return std::nullopt;
      ++at_;
    }
  }

 private:
  bool read_plain() {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != separator_ && !break_at(text_, at_)) ++at_;
    row_.fields.emplace_back(text_.substr(begin, at_ - begin));
    return true;
  }

  bool read_quoted() {
    std::string field;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '"') {
        const bool is_pair = at_ + 1 < text_.size() && text_[at_ + 1] == '"';
        ++at_;
        if (!is_pair) {
          row_.fields.push_back(std::move(field));
          return true;
        }
      }
      if (text_[at_] == '\n') ++row_.lines;
      field += text_[at_];
    }
    return false;
  }

  std::string_view text_;
  char separator_;
  size_t at_ = 0;
  TableRow row_;
};

}  // namespace

std::optional<TableRow> read_table_row(std::string_view text, char separator) {
  return RowReader(text, separator).read();
}

size_t end_of_last_row(std::string_view text, char separator) {
  size_t end = 0;
  while (end < text.size()) {
    const auto row = read_table_row(text.substr(end), separator);
    if (!row || text[end + row->bytes - 1] != '\n') break;
    end += row->bytes;
  }
  return end;
}

std::optional<size_t> TableLayout::column(std::string_view name) const {
  const auto found = std::ranges::find(columns, name);
  if (found == columns.end()) return std::nullopt;
  return static_cast<size_t>(found - columns.begin());
}

std::string TableLayout::column_names() const {
  constexpr size_t kMostShown = 500;  // bytes
  std::string text;
  for (const std::string& name : columns) {
    text += (text.empty() ? "" : ", ") + base::printable(name, 100);
    if (text.size() > kMostShown) return text + ", \u2026";
  }
  return text;
}

}  // namespace fullshard::data
