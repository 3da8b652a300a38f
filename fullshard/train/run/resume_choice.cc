// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/resume_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <thread>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/host_name.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/stored/last_checkpoint.h"

namespace fullshard::train {
namespace {

using std::chrono::steady_clock;

// What rank 0 tells is this and a name in every rank's own directory, or a kind and a path.
constexpr char kInDirectory = '/';

std::string told_of(const stored::FoundCheckpoint& found) {
  return static_cast<char>('0' + static_cast<int>(found.kind())) + found.path();
}

stored::FoundCheckpoint from_told(const std::string& told, const std::string& directory) {
  if (told.front() == kInDirectory) {
    return stored::FoundCheckpoint::as_told(stored::CheckpointKind::own, directory + told);
  }
  return stored::FoundCheckpoint::as_told(static_cast<stored::CheckpointKind>(told.front() - '0'),
                                          told.substr(1));
}

std::string name_in(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string decide(const std::string& wanted, const std::string& directory, ResumeChoice& choice) {
  if (wanted == "auto") {
    stored::LastCheckpoint last = stored::last_checkpoint(directory);
    choice.skipped = std::move(last.skipped);
    return last.folder.empty() ? "" : kInDirectory + name_in(last.folder);
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
std::string what_is_missing(const stored::FoundCheckpoint& found) {
  const std::string& path = found.path();
  if (found.is_own()) return stored::checkpoint_problem(path);
  return base::is_file(path) || base::is_folder(path) ? "" : path + ": is not there";
}

std::string wait_for(const stored::FoundCheckpoint& found, std::chrono::milliseconds patience) {
  constexpr auto kBetweenLooks = std::chrono::milliseconds(200);
  const auto end = steady_clock::now() + patience;
  std::string missing = what_is_missing(found);
  while (!missing.empty() && steady_clock::now() < end) {
    std::this_thread::sleep_for(kBetweenLooks);
    missing = what_is_missing(found);
  }
  return missing;
}

// Collective.
void check_all_have_it(const Communicator& everyone, const std::string& name,
                       const std::string& missing) {
  const auto found = engine::gather_texts(
      everyone, missing.empty() ? "" : fmt::format("on host {}: {}", base::host_name(), missing),
      "resume");
  std::vector<std::string> without;
  for (size_t rank = 0; rank < found.size(); ++rank) {
    if (!found[rank].empty()) without.push_back(fmt::format("rank {} {}", rank, found[rank]));
  }
  if (without.empty()) return;
  fail_as(ErrorKind::input,
          "resume: rank 0 goes on from {}, which not all ranks have ({}); copy it there, or name "
          "one that all have with --resume",
          name, fmt::join(without, "; "));
}

}  // namespace

ResumeChoice choose_checkpoint(const World& world, const std::string& wanted,
                               const std::string& directory, std::chrono::milliseconds patience) {
  const Communicator& everyone = world.communicator();
  ResumeChoice choice;
  std::string told;
  engine::throw_alike(everyone,
                      world.rank() == 0
                          ? engine::error_of([&] { told = decide(wanted, directory, choice); })
                          : std::nullopt,
                      "resume");
  told = engine::gather_texts(everyone, told, "resume")[0];
  if (told.empty()) return choice;
  choice.checkpoint = from_told(told, directory);
  check_all_have_it(everyone, name_in(choice.checkpoint->path()),
                    wait_for(*choice.checkpoint, patience));
  return choice;
}

}  // namespace fullshard::train
