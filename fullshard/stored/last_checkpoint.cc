// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/last_checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <tuple>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/folder_names.h"
#include "fullshard/base/real_path.h"
#include "fullshard/stored/checkpoint_folder.h"
#include "fullshard/stored/manifest.h"

namespace fullshard::stored {
namespace {

bool is_step_name(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  return name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
         name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos;
}

// By name: the folder of a link is the one that holds the link.
std::string parent_of(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

struct Candidate {
  std::string name;
  int64_t save_number = 0;
  int64_t saved_at = 0;
  int64_t step = 0;
  std::string problem = {};  // empty: complete
};

Candidate examine(const std::string& directory, const std::string& name) {
  Candidate candidate{.name = name};
  if (name.ends_with(".part")) {
    candidate.problem = "was never finished";
    return candidate;
  }
  const auto folder = fmt::format("{}/{}", directory, name);
  try {
    const auto manifest = read_manifest(folder);
    candidate.save_number = manifest.save_number;
    candidate.saved_at = manifest.saved_at;
    candidate.step = manifest.progress.step;
    check_files(manifest, folder);
  } catch (const Error& error) {
    candidate.problem = error.what();
  }
  return candidate;
}

// Newest first, by the number of the save, or without one by the clock; those whose age is unknown
// come before them.
std::vector<Candidate> candidates_in(const std::string& directory) {
  std::vector<Candidate> candidates;
  for (const auto& name : base::names_in_folder(directory)) {
    const auto folder = fmt::format("{}/{}", directory, name);
    const bool is_candidate =
        base::is_folder(folder) && (is_step_name(name) || name.ends_with(".part") ||
                                    base::is_file(folder + "/" + kManifestName));
    if (is_candidate) candidates.push_back(examine(directory, name));
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    const auto rank = [](const Candidate& one) {
      return std::tuple(one.saved_at == 0, one.save_number, one.saved_at, one.step, one.name);
    };
    return rank(a) > rank(b);
  });
  return candidates;
}

}  // namespace

LastCheckpoint last_checkpoint(const std::string& directory,
                               const std::vector<std::string>& passed_over) {
  LastCheckpoint last;
  for (const auto& candidate : candidates_in(directory)) {
    if (std::ranges::find(passed_over, candidate.name) != passed_over.end()) continue;
    if (candidate.problem.empty()) {
      last.folder = fmt::format("{}/{}", directory, candidate.name);
      last.step = candidate.step;
      break;
    }
    last.skipped.push_back(fmt::format("{}: {}", candidate.name, candidate.problem));
  }
  return last;
}

std::vector<CompleteCheckpoint> complete_checkpoints(const std::string& directory) {
  std::vector<CompleteCheckpoint> complete;
  for (const auto& candidate : candidates_in(directory)) {
    if (candidate.problem.empty()) complete.push_back({candidate.name, candidate.saved_at});
  }
  return complete;
}

int64_t next_save_number(const std::string& directory) {
  int64_t largest = 0;
  for (const auto& candidate : candidates_in(directory)) {
    largest = std::max(largest, candidate.save_number);
  }
  return largest + 1;
}

bool is_of_run(const std::string& checkpoint, const std::string& run) {
  const std::string checkpoints = run + "/checkpoints";
  const auto lies_there = [&](const std::string& path) {
    return base::lies_in(path, run) || base::lies_in(path, checkpoints);
  };
  return lies_there(checkpoint) || lies_there(parent_of(checkpoint));
}

std::string checkpoint_problem(const std::string& folder, std::optional<int64_t> saved_at) {
  try {
    const Manifest manifest = read_manifest(folder);
    check_files(manifest, folder);
    if (saved_at && manifest.saved_at != *saved_at) return folder + ": belongs to another save";
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void remove_old_checkpoints(const std::string& directory, int num_kept,
                            const std::vector<std::string>& kept_names) {
  int count = 0;
  for (const auto& candidate : candidates_in(directory)) {
    const auto folder = fmt::format("{}/{}", directory, candidate.name);
    if (candidate.name.ends_with(".part")) {
      remove_checkpoint(folder);
      continue;
    }
    if (!candidate.problem.empty() || !is_step_name(candidate.name)) continue;
    const bool is_kept =
        std::find(kept_names.begin(), kept_names.end(), candidate.name) != kept_names.end();
    if (++count > num_kept && !is_kept) remove_checkpoint(folder);
  }
}

void remove_all_checkpoints(const std::string& directory,
                            const std::function<bool(const std::string& folder)>& is_kept) {
  for (const auto& candidate : candidates_in(directory)) {
    const auto folder = fmt::format("{}/{}", directory, candidate.name);
    if (!is_kept(folder)) remove_checkpoint(folder);
  }
  ::unlink(fmt::format("{}/{}", directory, kLatest).c_str());
}

}  // namespace fullshard::stored
