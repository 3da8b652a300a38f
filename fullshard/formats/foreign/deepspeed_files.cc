// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/foreign/deepspeed_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>

#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/folder.h"
#include "fullshard/formats/input_error.h"

namespace fullshard::formats {
namespace {

constexpr std::string_view kModelEnd = "mp_rank_00_model_states.pt";
constexpr std::string_view kOptimizerEnd = "mp_rank_00_optim_states.pt";
constexpr std::string_view kRankBegin = "zero_pp_rank_";
constexpr int64_t kMostTagBytes = 4096;

bool holds_states(const std::string& folder) {
  if (!base::is_folder(folder)) return false;
  return std::ranges::any_of(names_in(folder),
                             [](const auto& name) { return name.ends_with("_states.pt"); });
}

enum class FileOf { model, optimizer };

struct RankFile {
  FileOf kind;
  int rank;
  bool operator==(const RankFile&) const = default;
};

// "zero_pp_rank_12_" -> 12
std::optional<int> rank_before(std::string_view name, std::string_view end) {
  if (!name.ends_with(end)) return std::nullopt;
  name.remove_suffix(end.size());
  if (name.starts_with("bf16_")) name.remove_prefix(5);
  if (!name.starts_with(kRankBegin) || !name.ends_with('_')) return std::nullopt;
  name.remove_prefix(kRankBegin.size());
  name.remove_suffix(1);
  int rank = 0;
  const auto [stop, problem] = std::from_chars(name.data(), name.data() + name.size(), rank);
  if (problem != std::errc() || stop != name.data() + name.size() || rank < 0) return std::nullopt;
  return rank;
}

// Nothing: the file is of a run with another kind of parallelism too, or not of a checkpoint.
std::optional<RankFile> parse_name(std::string_view name) {
  if (const auto rank = rank_before(name, kOptimizerEnd)) return RankFile{FileOf::optimizer, *rank};
  if (const auto rank = rank_before(name, kModelEnd)) return RankFile{FileOf::model, *rank};
  if (name == kModelEnd) return RankFile{FileOf::model, 0};
  return std::nullopt;
}

// An archive records the name under which it was saved. If two ranks have equal shapes, nothing
// else shows that their files were exchanged.
void check_is_own_file(const TorchFile& file, const std::string& name) {
  const std::string saved = fmt::format("{}.pt", file.saved_name());
  const auto found = parse_name(saved);
  check_input(!found || found == parse_name(name),
              "{}: was saved as {}; files of two ranks were exchanged or renamed: copy the "
              "checkpoint again",
              file.path(), saved);
}

std::string read_tag(const std::string& path) {
  const FileHandle file = FileHandle::open(path + "/latest");
  check_input(file.size() <= kMostTagBytes, "{}: has {} bytes, expected the name of a folder",
              file.path(), file.size());
  std::string tag = file.read_text(0, file.size(), "tag");
  const auto is_space = [](char sign) { return sign == '\n' || sign == ' ' || sign == '\r'; };
  while (!tag.empty() && is_space(tag.back())) tag.pop_back();
  check_input(is_plain_name(tag), "{}: holds '{}', expected the name of a folder next to it",
              file.path(), tag);
  return tag;
}

using NamesByRank = std::map<int, std::string>;

void add(NamesByRank& names, int rank, const std::string& name, const std::string& folder) {
  const auto [found, is_new] = names.emplace(rank, name);
  check_input(is_new, "{}: has two files of rank {}: {} and {}; one belongs to another checkpoint",
              folder, rank, found->second, name);
}

void check_ranks(const NamesByRank& names, const std::string& folder, const char* kind) {
  int expected = 0;
  for (const auto& [rank, name] : names) {
    check_input(rank == expected, "{}: the {} file of rank {} is missing, rank {} has one", folder,
                kind, expected, rank);
    ++expected;
  }
}

std::vector<SharedTorchFile> open_all(const NamesByRank& names, const std::string& folder) {
  std::vector<SharedTorchFile> files;
  for (const auto& [rank, name] : names) {
    files.push_back(std::make_shared<const TorchFile>(fmt::format("{}/{}", folder, name)));
    check_is_own_file(*files.back(), name);
  }
  return files;
}

}  // namespace

bool is_deepspeed_folder(const std::string& path) {
  if (holds_states(path)) return true;
  if (!base::is_file(path + "/latest")) return false;
  return std::ranges::any_of(names_in(path), [&](const auto& name) {
    return holds_states(fmt::format("{}/{}", path, name));
  });
}

std::string find_deepspeed_folder(const std::string& path, const std::string& tag) {
  if (tag.empty() && holds_states(path)) return path;
  check_input(tag.empty() || is_plain_name(tag), "{}: invalid tag '{}'", path, tag);
  const std::string folder = fmt::format("{}/{}", path, tag.empty() ? read_tag(path) : tag);
  check_input(base::is_folder(folder), "{}: does not exist{}", folder,
              tag.empty() ? fmt::format("; {}/latest names it", path) : "");
  return folder;
}

DeepSpeedFiles open_deepspeed_files(const std::string& path, const std::string& tag) {
  const std::string folder = find_deepspeed_folder(path, tag);
  DeepSpeedFiles files{.folder = folder, .tag = std::string(name_part(folder))};
  NamesByRank models;
  NamesByRank optimizers;
  for (const auto& name : names_in(files.folder)) {
    if (!name.ends_with("_states.pt")) continue;
    const auto file = parse_name(name);
    check_input(
        file.has_value(),
        "{}/{}: belongs to a model-parallel or mixture-of-experts run, which is not supported",
        files.folder, name);
    add(file->kind == FileOf::model ? models : optimizers, file->rank, name, files.folder);
  }
  check_input(!models.empty(), "{}: has no *_model_states.pt", files.folder);
  check_input(!optimizers.empty(),
              "{}: has no *_optim_states.pt: ZeRO was not used, or the copy "
              "is incomplete",
              files.folder);
  check_ranks(models, files.folder, "model");
  check_ranks(optimizers, files.folder, "optimizer");
  files.models = open_all(models, files.folder);
  files.optimizers = open_all(optimizers, files.folder);
  return files;
}

}  // namespace fullshard::formats
