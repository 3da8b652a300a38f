// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/text/hub_dataset.h"

#include <algorithm>
#include <array>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/folder_names.h"
#include "fullshard/base/hub_cache.h"
#include "fullshard/data/text/data_file_kind.h"

namespace fullshard::data {
namespace {

constexpr int kDeepestFolder = 4;
constexpr std::array<std::string_view, 2> kTrainWords = {"train", "training"};
constexpr std::array<std::string_view, 4> kValidationWords = {"validation", "valid", "val", "dev"};
constexpr std::array<std::string_view, 2> kTestWords = {"test", "testing"};

// Adds the files below `folder`, as "data/train-00000-of-00001.parquet".
void add_files_below(const std::string& folder, const std::string& below, int depth,
                     std::vector<std::string>& files) {
  for (const std::string& name : base::names_in_folder(folder + "/" + below)) {
    if (name.front() == '.') continue;
    const std::string path = below.empty() ? name : below + "/" + name;
    if (base::is_folder(folder + "/" + path)) {
      if (depth < kDeepestFolder) add_files_below(folder, path, depth + 1, files);
    } else {
      files.push_back(path);
    }
  }
}

// Words of a path: "data", "train", "00000", … of data/train-00000-of-00001.parquet.
bool has_word(std::string_view path, std::string_view word) {
  constexpr std::string_view kBetween = "/-_.";
  while (!path.empty()) {
    const size_t end = std::min(path.find_first_of(kBetween), path.size());
    if (path.substr(0, end) == word) return true;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return false;
}

template <class Words>
bool has_any(std::string_view path, const Words& words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return has_word(path, word); });
}

bool is_of_split(std::string_view path, std::string_view split) {
  if (split == "validation") return has_any(path, kValidationWords);
  if (has_any(path, kTrainWords)) return true;
  return !has_any(path, kValidationWords) && !has_any(path, kTestWords);
}

bool is_of_configuration(std::string_view path, std::string_view configuration) {
  if (configuration.empty()) return true;
  const size_t at = path.find(configuration);
  if (at == std::string_view::npos) return false;
  const size_t end = at + configuration.size();
  constexpr std::string_view kBetween = "/-_.";
  return (at == 0 || kBetween.find(path[at - 1]) != std::string_view::npos) &&
         (end == path.size() || kBetween.find(path[end]) != std::string_view::npos);
}

// Whether the file describes the data instead of holding it.
bool is_about_data(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.starts_with("README") || name.starts_with("LICENSE") ||
         name.starts_with("dataset_info");
}

bool is_packed(std::string_view path) {
  return path.ends_with(".parquet") || path.ends_with(".arrow");
}

}  // namespace

std::optional<HubDatasetName> HubDatasetName::parse(std::string_view text) {
  const size_t colon = std::min(text.find(':'), text.size());
  HubDatasetName found{.name = std::string(text.substr(0, colon)),
                       .configuration = std::string(text.substr(std::min(colon + 1, text.size())))};
  const bool is_name = base::is_hub_name(found.name) &&
                       (found.configuration.empty() || base::is_hub_name(found.configuration));
  return is_name ? std::optional(std::move(found)) : std::nullopt;
}

std::vector<std::string> find_hub_dataset(const HubDatasetName& name, std::string_view split) {
  const base::HubCache cache = base::HubCache::of_process();
  const std::string folder = cache.find(base::HubKind::dataset, name.name);
  if (folder.empty()) {
    fail_as(
        ErrorKind::input,
        "{}: is not a file, a folder, or a data set in the Hugging Face cache ({}); download it: "
        "{}",
        name.name, cache.folder(), base::download_command(base::HubKind::dataset, name.name));
  }
  std::vector<std::string> all, found;
  add_files_below(folder, "", 0, all);
  bool has_packed = false;
  for (const std::string& path : all) {
    if (!is_of_configuration(path, name.configuration) || !is_of_split(path, split)) continue;
    has_packed = has_packed || is_packed(path);
    const bool is_read = is_data_file(path) && !is_about_data(path);
    if (is_read) found.push_back(folder + "/" + path);
  }
  if (!found.empty() && !has_packed) return found;
  const std::string configuration =
      name.configuration.empty() ? "" : fmt::format(", '{}'", name.configuration);
  if (has_packed) {
    fail_as(ErrorKind::input,
            "{}: its files are Parquet or Arrow, which are not supported; convert them to JSON: "
            "python3 -c \"import datasets; datasets.load_dataset('{}'{}, "
            "split='{}').to_json('{}.jsonl')\"",
            folder, name.name, configuration, split, split);
  }
  fail_as(ErrorKind::input, "{}: has no files of the split {}{}; give the files themselves", folder,
          split,
          name.configuration.empty()
              ? ""
              : fmt::format(" and the configuration {}", name.configuration));
}

}  // namespace fullshard::data
