// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/config_templates.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "fullshard/base/closest.h"
#include "fullshard/base/error.h"

namespace fullshard::config {
namespace {

std::string_view comment_mark(const ConfigTemplate& file) {
  return file.file.ends_with(".json") ? "//" : "#";
}

// The line up to a comment. The files have no comment mark inside a string.
std::string_view without_comment(std::string_view line, std::string_view mark) {
  line = line.substr(0, line.find(mark));
  const size_t last = line.find_last_not_of(' ');
  return line.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

}  // namespace

std::string_view ConfigTemplate::summary() const {
  const std::string_view line = text.substr(0, text.find('\n'));
  return line.substr(std::min(comment_mark(*this).size() + 1, line.size()));
}

std::string ConfigTemplate::plain_text() const {
  std::string plain;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = without_comment(rest.substr(0, end), comment_mark(*this));
    if (!line.empty()) plain += fmt::format("{}\n", line);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return plain;
}

const ConfigTemplate& find_config_template(std::string_view name) {
  std::vector<std::string> names;
  for (const ConfigTemplate& file : config_templates()) {
    if (file.name == name || file.file == name) return file;
    names.emplace_back(file.name);
  }
  const auto near = base::closest(name, names);
  fail_as(ErrorKind::usage, "config template: no template '{}'{}; choose one of {}", name,
          near ? fmt::format(", did you mean '{}'?", *near) : "", fmt::join(names, ", "));
}

}  // namespace fullshard::config
