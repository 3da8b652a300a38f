// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/resume_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/host_name.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/stored/last_checkpoint.h"
#include "fullshard/stored/manifest.h"
#include "fullshard/stored/side_files.h"

namespace fullshard::train {
namespace {

using std::chrono::steady_clock;

// What rank 0 tells is this, which save it is and a name in every rank's own directory, or a kind
// and a path.
constexpr char kInDirectory = '/';

// Of a checkpoint as this rank names it.
struct Told {
  stored::FoundCheckpoint found;
  std::optional<int64_t> saved_at{};
};

std::string told_in_directory(const stored::CompleteCheckpoint& chosen) {
  return fmt::format("{}{}{}{}", kInDirectory, chosen.saved_at, kInDirectory, chosen.name);
}

std::string told_of(const stored::FoundCheckpoint& found) {
  return static_cast<char>('0' + static_cast<int>(found.kind())) + found.path();
}

Told from_told(const std::string& told, const std::string& directory) {
  if (told.front() == kInDirectory) {
    const size_t place = told.find(kInDirectory, 1);
    return {stored::FoundCheckpoint::as_told(stored::CheckpointKind::own,
                                             directory + told.substr(place)),
            std::stoll(told.substr(1))};
  }
  return {stored::FoundCheckpoint::as_told(static_cast<stored::CheckpointKind>(told.front() - '0'),
                                           told.substr(1))};
}

std::string name_in(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string decide(const std::string& wanted, const std::string& directory,
                   const std::vector<std::string>& passed_over, ResumeChoice& choice) {
  if (wanted == "auto") {
    stored::LastCheckpoint last = stored::last_checkpoint(directory, passed_over);
    choice.skipped = std::move(last.skipped);
    if (last.folder.empty()) return "";
    return told_in_directory({name_in(last.folder), stored::read_manifest(last.folder).saved_at});
  }
  if (!base::is_file(wanted) && !base::is_folder(wanted)) {
    fail_as(ErrorKind::input, "{}: is not there; give a checkpoint's folder with --resume", wanted);
  }
  const auto found = stored::FoundCheckpoint::find_to_resume(wanted);
  // Rank 0 has nobody to wait for.
  const std::string problem = found.is_own() ? stored::checkpoint_problem(found.path()) : "";
  if (!problem.empty()) fail_as(ErrorKind::input, "{}", problem);
  return told_of(found);
}

// Empty: it is here. Of other programs' checkpoints the loader says what is missing.
std::string what_is_missing(const Told& told) {
  const std::string& path = told.found.path();
  if (told.found.is_own()) return stored::checkpoint_problem(path, told.saved_at);
  return base::is_file(path) || base::is_folder(path) ? "" : path + ": is not there";
}

std::string wait_for(const Told& told, std::chrono::milliseconds patience) {
  constexpr auto kBetweenLooks = std::chrono::milliseconds(200);
  const auto end = steady_clock::now() + patience;
  std::string missing = what_is_missing(told);
  while (!missing.empty() && steady_clock::now() < end) {
    std::this_thread::sleep_for(kBetweenLooks);
    missing = what_is_missing(told);
  }
  return missing;
}

// Collective. The ranks that do not have it, their hosts and why; empty: all have it.
std::string ranks_without(const Communicator& everyone, const std::string& missing) {
  const auto found = engine::gather_texts(
      everyone, missing.empty() ? "" : fmt::format("on host {}: {}", base::host_name(), missing),
      "resume");
  std::vector<std::string> without;
  for (size_t rank = 0; rank < found.size(); ++rank) {
    if (!found[rank].empty()) without.push_back(fmt::format("rank {} {}", rank, found[rank]));
  }
  return fmt::format("{}", fmt::join(without, "; "));
}

std::vector<std::string> told_lines(const std::string& text) {
  std::istringstream lines(text);
  std::vector<std::string> told;
  for (std::string line; std::getline(lines, line);) told.push_back(line);
  return told;
}

// Collective. The newest of rank 0's that all ranks have, as it would be told; empty: there is
// none.
std::string newest_of_all(const Communicator& everyone, const std::string& directory,
                          const std::vector<std::string>& passed_over) {
  std::vector<std::string> own;
  for (const auto& checkpoint : stored::complete_checkpoints(directory)) {
    const bool counts = std::ranges::find(passed_over, checkpoint.name) == passed_over.end();
    if (counts) own.push_back(told_in_directory(checkpoint));
  }
  std::vector<std::set<std::string>> held;
  std::vector<std::string> of_first;
  for (const auto& text :
       engine::gather_texts(everyone, fmt::format("{}", fmt::join(own, "\n")), "resume")) {
    const auto lines = told_lines(text);
    if (held.empty()) of_first = lines;
    held.emplace_back(lines.begin(), lines.end());
  }
  const auto all_have = [&](const std::string& told) {
    return std::ranges::all_of(held, [&](const auto& names) { return names.contains(told); });
  };
  const auto found = std::ranges::find_if(of_first, all_have);
  return found == of_first.end() ? "" : *found;
}

}  // namespace

ResumeChoice choose_checkpoint(const World& world, const std::string& wanted,
                               const std::string& directory,
                               const std::vector<std::string>& passed_over,
                               std::chrono::milliseconds patience) {
  const Communicator& everyone = world.communicator();
  ResumeChoice choice;
  std::string told;
  engine::throw_alike(everyone,
                      world.rank() == 0 ? engine::error_of([&] {
                        told = decide(wanted, directory, passed_over, choice);
                      })
                                        : std::nullopt,
                      "resume");
  told = engine::gather_texts(everyone, told, "resume")[0];
  if (told.empty()) return choice;
  choice.checkpoint = from_told(told, directory).found;
  const std::string without =
      ranks_without(everyone, wait_for(from_told(told, directory), patience));
  if (without.empty()) return choice;
  const std::string newest = name_in(told);
  told = wanted == "auto" ? newest_of_all(everyone, directory, passed_over) : "";
  if (told.empty()) {
    fail_as(ErrorKind::input,
            "resume: rank 0 goes on from {}, which not all ranks have ({}); copy it there, or name "
            "one that all have with --resume",
            newest, without);
  }
  if (world.rank() == 0) {
    choice.skipped.push_back(fmt::format("{}: not all ranks have it ({})", newest, without));
  }
  choice.checkpoint = from_told(told, directory).found;
  return choice;
}

std::string damage_in(const World& world, const std::string& checkpoint) {
  const auto own = engine::error_of([&] {
    const stored::Manifest manifest = stored::read_manifest(checkpoint);
    for (size_t i = 0; i < manifest.files.size(); ++i) {
      const stored::StoredFile& file = manifest.files[i];
      const int reader = manifest.is_node_local
                             ? file.rank
                             : static_cast<int>(i % static_cast<size_t>(world.size()));
      const bool is_here = !manifest.is_node_local || base::is_file(checkpoint + "/" + file.name);
      if (reader == world.rank() && is_here) stored::check_sums_of_file(file, checkpoint);
    }
  });
  for (const auto& damage :
       engine::gather_texts(world.communicator(), own ? own->what() : "", "resume")) {
    if (!damage.empty()) return damage;
  }
  return "";
}

}  // namespace fullshard::train
