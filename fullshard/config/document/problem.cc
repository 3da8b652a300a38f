// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/document/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "fullshard/base/printable.h"
#include "fullshard/config/document/document.h"

namespace fullshard {
namespace {

constexpr size_t kMostShown = 400;  // bytes of a key

std::string list_json(const std::vector<Problem>& problems) {
  std::vector<std::string> parts;
  for (const Problem& problem : problems) parts.push_back(problem.json());
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

// A note on how to allow unknown keys; empty where no error is about one.
std::string way_past(const std::vector<Problem>& errors) {
  const bool has_unknown = std::any_of(errors.begin(), errors.end(),
                                       [](const Problem& error) { return error.is_unknown_key; });
  return has_unknown ? "note: --unknown-keys warn lets unknown keys pass, with a warning each" : "";
}

}  // namespace

std::string Problem::text() const {
  std::string text = file;
  if (line > 0) text += fmt::format(":{}", line);
  if (!text.empty()) text += ": ";
  if (!key.empty() && key != file)
    text += base::printable(key, kMostShown) + ": ";  // a flag is both
  text += message;
  if (!suggestion.empty()) {
    text += is_name ? fmt::format("; did you mean '{}'?", suggestion) : "; " + suggestion;
  }
  return base::printable(text);
}

std::string Problem::json() const {
  return fmt::format(R"({{"file": {}, "line": {}, "key": {}, "message": {}, "suggestion": {}}})",
                     config::quote_json(file), line, config::quote_json(key),
                     config::quote_json(message), config::quote_json(suggestion));
}

std::string Problems::text() const {
  std::string text;
  for (const Problem& problem : errors) text += "error: " + problem.text() + "\n";
  if (const std::string note = way_past(errors); !note.empty()) text += note + "\n";
  for (const Problem& problem : warnings) text += "warning: " + problem.text() + "\n";
  return text;
}

std::string Problems::json() const {
  return fmt::format(R"({{"ok": {}, "problems": {}, "warnings": {}}})", ok(), list_json(errors),
                     list_json(warnings));
}

void Problems::sort() {
  const auto by_line = [](const Problem& a, const Problem& b) {
    return std::tie(a.file, a.line) < std::tie(b.file, b.line);
  };
  std::stable_sort(errors.begin(), errors.end(), by_line);
  std::stable_sort(warnings.begin(), warnings.end(), by_line);
}

void Problems::throw_if_any() const {
  if (ok()) return;
  std::string text = errors.front().text();
  for (size_t i = 1; i < errors.size(); ++i) text += "\nerror: " + errors[i].text();
  if (const std::string note = way_past(errors); !note.empty()) text += "\n" + note;
  throw Error(text, ErrorKind::usage);
}

}  // namespace fullshard
