// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/text/data_file_kind.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/folder_names.h"
#include "fullshard/data/text/decompressor.h"
#include "fullshard/data/text/hub_dataset.h"
#include "fullshard/data/text/path_weight.h"
#include "fullshard/data/tokens/token_layout.h"

namespace fullshard::data {
namespace {

constexpr std::array<std::pair<std::string_view, FileKind>, 10> kEndings = {
    {{".bin", FileKind::tokens},
     {".tokens", FileKind::tokens},
     {".txt", FileKind::text},
     {".text", FileKind::text},
     {".md", FileKind::text},
     {".jsonl", FileKind::json},
     {".ndjson", FileKind::json},
     {".json", FileKind::json},
     {".tsv", FileKind::table},
     {".csv", FileKind::csv}}};

// Formats that no packaged library reads here; one command converts each to JSON.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kConversions = {
    {{".parquet",
      "python3 -c \"import pandas, sys; pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], "
      "orient='records', lines=True)\" {0} {1}"},
     {".arrow",
      "python3 -c \"import datasets, sys; datasets.Dataset.from_file(sys.argv[1])"
      ".to_json(sys.argv[2])\" {0} {1}"},
     {".xlsx",
      "python3 -c \"import pandas, sys; pandas.read_excel(sys.argv[1]).to_json(sys.argv[2], "
      "orient='records', lines=True)\" {0} {1}"}}};

// Throws if the format is known but not supported.
void refuse_with_conversion(const std::string& path) {
  for (const auto& [ending, command] : kConversions) {
    if (!path.ends_with(ending)) continue;
    const std::string output = path.substr(0, path.size() - ending.size()) + ".jsonl";
    fail_as(ErrorKind::input, "{}: {} is not supported; convert it to JSON: {}", path, ending,
            fmt::format(fmt::runtime(command), path, output));
  }
}

std::optional<FileKind> kind_by_ending(std::string_view path) {
  if (path.ends_with(".bin.json")) return std::nullopt;  // a token file's companion
  const std::string_view inside = without_compression(path);
  for (const auto& [ending, kind] : kEndings) {
    if (!inside.ends_with(ending)) continue;
    // Tokens are mapped as they are in the file.
    const bool is_mapped = kind == FileKind::tokens && inside.size() < path.size();
    return is_mapped ? std::nullopt : std::optional(kind);
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

// For paths that still have a weight where none is allowed.
void refuse_weight(const std::string& path) {
  const auto weighted = path_with_weight(path);
  if (!weighted || ::access(weighted->path.c_str(), F_OK) != 0) return;
  fail_as(ErrorKind::input,
          "{}: has a weight, but only --data mixes data sets, and --eval-data takes no weights; "
          "give {}",
          path, weighted->path);
}

std::string all_endings() {
  std::string text;
  for (const auto& [ending, kind] : kEndings) {
    text += (text.empty() ? "" : ", ") + std::string(ending);
  }
  return text + ", texts also with .gz or .zst added";
}

}  // namespace

FileKind kind_of(const std::string& path) {
  if (base::is_special_file(path)) {
    fail_as(ErrorKind::input, "{}: is not a regular file; data are read from files", path);
  }
  std::ifstream file(path, std::ios::binary);
  std::string beginning(8, '\0');
  file.read(beginning.data(), std::ssize(beginning));
  beginning.resize(static_cast<size_t>(file.gcount()));
  if (has_token_header(beginning)) return FileKind::tokens;
  if (const auto kind = kind_by_ending(path)) return *kind;
  refuse_with_conversion(path);
  fail_as(ErrorKind::input, "{}: unknown file ending; expected one of {}", path, all_endings());
}

bool is_data_file(std::string_view path) { return kind_by_ending(path).has_value(); }

std::vector<std::string> list_files(const std::vector<std::string>& paths, std::string_view split) {
  std::vector<std::string> files;
  if (paths.empty()) fail_as(ErrorKind::input, "data: no file or folder given");
  for (std::string path : paths) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
      const int reason = errno;
      if (reason == ENOENT) refuse_weight(path);
      const auto name = HubDatasetName::parse(path);
      // A word that ends like a file's name is a missing file.
      if (reason == ENOENT && name && !is_data_file(path)) {
        const std::vector<std::string> found = find_hub_dataset(*name, split);
        files.insert(files.end(), found.begin(), found.end());
        continue;
      }
      fail_as(ErrorKind::input, "{}: cannot be read ({})", path, std::strerror(reason));
    }
    if (!S_ISDIR(status.st_mode)) {
      files.push_back(std::move(path));
      continue;
    }
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    const std::vector<std::string> found = files_of(path);
    if (found.empty()) {
      for (const std::string& name : base::names_in_folder(path)) {
        refuse_with_conversion(path + "/" + name);
      }
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
    case FileKind::csv:
      return "a table";
  }
  return "";
}

}  // namespace fullshard::data
