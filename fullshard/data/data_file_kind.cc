// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/data_file_kind.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/data/token_layout.h"

namespace fullshard::data {
namespace {

constexpr std::array<std::pair<std::string_view, FileKind>, 9> kEndings = {
    {{".bin", FileKind::tokens},
     {".tokens", FileKind::tokens},
     {".txt", FileKind::text},
     {".text", FileKind::text},
     {".md", FileKind::text},
     {".jsonl", FileKind::json},
     {".ndjson", FileKind::json},
     {".json", FileKind::json},
     {".tsv", FileKind::table}}};

std::optional<FileKind> kind_by_ending(std::string_view path) {
  if (path.ends_with(".bin.json")) return std::nullopt;  // a token file's companion
  for (const auto& [ending, kind] : kEndings) {
    if (path.ends_with(ending)) return kind;
  }
  return std::nullopt;
}

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> files;
  DIR* stream = ::opendir(folder.c_str());
  if (stream == nullptr) {
    fail_as(ErrorKind::input, "{}: cannot be read ({})", folder, std::strerror(errno));
  }
  while (const dirent* entry = ::readdir(stream)) {
    const std::string path = folder + "/" + entry->d_name;
    struct stat status {};
    if (entry->d_name[0] != '.' && kind_by_ending(path) && ::stat(path.c_str(), &status) == 0 &&
        S_ISREG(status.st_mode)) {
      files.push_back(path);
    }
  }
  ::closedir(stream);
  std::ranges::sort(files);
  return files;
}

std::string all_endings() {
  std::string text;
  for (const auto& [ending, kind] : kEndings) {
    text += (text.empty() ? "" : ", ") + std::string(ending);
  }
  return text;
}

}  // namespace

FileKind kind_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string beginning(8, '\0');
  file.read(beginning.data(), std::ssize(beginning));
  beginning.resize(static_cast<size_t>(file.gcount()));
  if (has_token_header(beginning)) return FileKind::tokens;
  if (const auto kind = kind_by_ending(path)) return *kind;
  fail_as(ErrorKind::input, "{}: what it holds is told by its ending; expected one of {}", path,
          all_endings());
}

std::vector<std::string> list_files(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  if (paths.empty()) fail_as(ErrorKind::input, "data: no file or folder is named");
  for (std::string path : paths) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
      fail_as(ErrorKind::input, "{}: cannot be read ({})", path, std::strerror(errno));
    }
    if (!S_ISDIR(status.st_mode)) {
      files.push_back(std::move(path));
      continue;
    }
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    const std::vector<std::string> found = files_of(path);
    if (found.empty()) {
      fail_as(ErrorKind::input, "{}: the folder has no file that ends in one of {}", path,
              all_endings());
    }
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

bool are_token_files(const std::vector<std::string>& files) {
  const FileKind first = kind_of(files.at(0));
  for (const std::string& file : files) {
    const FileKind kind = kind_of(file);
    if ((kind == FileKind::tokens) != (first == FileKind::tokens)) {
      fail_as(ErrorKind::input, "{} is {}, but {} is {}; give either token files or text", files[0],
              name_of(first), file, name_of(kind));
    }
  }
  return first == FileKind::tokens;
}

std::string_view name_of(FileKind kind) {
  switch (kind) {
    case FileKind::tokens:
      return "a token file";
    case FileKind::text:
      return "text";
    case FileKind::json:
      return "JSON";
    case FileKind::table:
      return "a table of pairs";
  }
  return "";
}

}  // namespace fullshard::data
