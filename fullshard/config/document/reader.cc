// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/document/reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "fullshard/base/base64.h"
#include "fullshard/base/printable.h"

namespace fullshard::config {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Position after blanks and comments.
size_t skip_comments(std::string_view text) {
  size_t at = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  while (at < text.size()) {
    if (std::strchr(" \t\r\n", text[at]) != nullptr) {
      ++at;
    } else if (text[at] == '#' || text.substr(at).starts_with("//")) {
      at = std::min(text.find('\n', at), text.size());
    } else if (text.substr(at).starts_with("/*")) {
      const size_t end = text.find("*/", at);
      at = end == std::string_view::npos ? text.size() : end + 2;
    } else {
      break;
    }
  }
  return at;
}

// Decodes what Python's urlsafe_b64encode writes.
std::optional<std::string> json_in_base64(std::string text) {
  std::replace(text.begin(), text.end(), '-', '+');
  std::replace(text.begin(), text.end(), '_', '/');
  auto decoded = base::decode_base64(text);
  if (decoded && !looks_like_json(*decoded)) decoded.reset();
  return decoded;
}

// Reads at most as many bytes as a configuration may have, and one more to detect a larger file:
// /dev/zero never ends.
std::string read_bounded(const std::string& path, std::string_view wanted) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 65536> block;
  while (file && text.size() <= kMaxConfigBytes) {
    file.read(block.data(), block.size());
    text.append(block.data(), static_cast<size_t>(file.gcount()));
  }
  const int problem = errno;  // before anything else sets it
  if (!file.is_open() || file.bad()) {
    fail_as(ErrorKind::usage, "{}: cannot be read ({}); name {}", base::printable(path),
            std::strerror(problem != 0 ? problem : EIO), wanted);
  }
  return text;
}

// Some guides name a folder instead of the configuration in it.
std::string only_config_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code problem;
  for (std::filesystem::directory_iterator entry(folder, problem), end; !problem && entry != end;
       entry.increment(problem)) {
    const std::string ending = entry->path().extension().string();
    const bool is_config = ending == ".json" || ending == ".yaml" || ending == ".yml";
    std::error_code ignored;
    if (is_config && entry->is_regular_file(ignored)) {
      names.push_back(entry->path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  if (names.size() == 1) return (std::filesystem::path(folder) / names.front()).string();
  constexpr size_t kMostListed = 20;
  if (names.size() > kMostListed) names.resize(kMostListed);
  const std::string list = base::printable(fmt::format("{}", fmt::join(names, ", ")));
  fail_as(ErrorKind::usage, "{}: is a folder, expected a configuration file; name the file{}",
          base::printable(folder), names.empty() ? "" : fmt::format(", one of {}", list));
}

}  // namespace

ConfigText read_config_file(const std::string& path, std::string_view wanted) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    if (path.starts_with('{')) return {"JSON", path};
    if (auto text = json_in_base64(path)) return {"base64", std::move(*text)};
  }
  if (std::filesystem::is_directory(path, ignored)) {
    const std::string file = only_config_in(path);
    return {file, read_bounded(file, wanted)};
  }
  if (std::filesystem::is_fifo(path, ignored)) {
    fail_as(ErrorKind::usage,
            "{}: is a pipe, which can be read only once, but every rank reads the configuration; "
            "save it to a file",
            base::printable(path));
  }
  return {path, read_bounded(path, wanted)};
}

bool looks_like_json(std::string_view text) {
  const size_t at = skip_comments(text);
  return at < text.size() && (text[at] == '{' || text[at] == '[');
}

std::optional<ConfigNode> read_config(std::string_view text, const std::string& name,
                                      Problems& problems) {
  if (text.size() > kMaxConfigBytes) {
    problems.errors.push_back({.file = name,
                               .message = fmt::format("expected a configuration of at most {} "
                                                      "bytes, but it has more",
                                                      kMaxConfigBytes)});
    return std::nullopt;
  }
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  auto root =
      looks_like_json(text) ? read_json(text, name, problems) : read_yaml(text, name, problems);
  if (root && root->kind != NodeKind::map) {
    problems.errors.push_back(
        {.file = name,
         .line = root->line,
         .message = root->kind == NodeKind::null
                        ? "empty, expected keys and values"
                        : fmt::format("{}, expected keys and values", name_of(root->kind))});
    return std::nullopt;
  }
  return root;
}

}  // namespace fullshard::config
