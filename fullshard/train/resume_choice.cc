#include "fullshard/train/resume_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/formats/deepspeed_files.h"
#include "fullshard/shard/agreement.h"
#include "fullshard/stored/any_checkpoint.h"
#include "fullshard/stored/last_checkpoint.h"

namespace fullshard {
namespace {

using std::chrono::steady_clock;

// What rank 0 tells begins with one of these: a name in every rank's own directory, the path of one
// of our checkpoints, that of another program's.
constexpr char kInDirectory = '/';
constexpr char kOwn = 'o';
constexpr char kForeign = 'f';

std::string this_host() {
  std::array<char, 256> name = {};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string name_in(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string decide(const std::string& wanted, const std::string& directory, ResumeChoice& choice) {
  if (wanted == "auto") {
    LastCheckpoint last = last_checkpoint(directory);
    choice.skipped = std::move(last.skipped);
    return last.folder.empty() ? "" : kInDirectory + name_in(last.folder);
  }
  if (!is_file(wanted) && !is_folder(wanted)) {
    fail_as(ErrorKind::input, "{}: is not there; give a checkpoint's folder with --resume", wanted);
  }
  const std::string own = find_own_checkpoint(wanted);
  if (own.empty()) {
    return kForeign + (is_deepspeed_folder(wanted) ? find_deepspeed_folder(wanted) : wanted);
  }
  // Rank 0 has nobody to wait for.
  if (const std::string problem = checkpoint_problem(own); !problem.empty()) {
    fail_as(ErrorKind::input, "{}", problem);
  }
  return kOwn + own;
}

// Empty: it is here. Of other programs' checkpoints the loader says what is missing.
std::string what_is_missing(const std::string& folder, bool is_own) {
  if (is_own) return checkpoint_problem(folder);
  return is_file(folder) || is_folder(folder) ? "" : folder + ": is not there";
}

std::string wait_for(const std::string& folder, bool is_own, std::chrono::milliseconds patience) {
  constexpr auto kBetweenLooks = std::chrono::milliseconds(200);
  const auto end = steady_clock::now() + patience;
  std::string missing = what_is_missing(folder, is_own);
  while (!missing.empty() && steady_clock::now() < end) {
    std::this_thread::sleep_for(kBetweenLooks);
    missing = what_is_missing(folder, is_own);
  }
  return missing;
}

// Collective.
void check_all_have_it(const Communicator& everyone, const std::string& name,
                       const std::string& missing) {
  const auto found = gather_texts(
      everyone, missing.empty() ? "" : fmt::format("on host {}: {}", this_host(), missing),
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
  throw_alike(everyone,
              world.rank() == 0 ? error_of([&] { told = decide(wanted, directory, choice); })
                                : std::nullopt,
              "resume");
  told = gather_texts(everyone, told, "resume")[0];
  if (told.empty()) return choice;
  choice.folder = told.front() == kInDirectory ? directory + told : told.substr(1);
  check_all_have_it(everyone, name_in(choice.folder),
                    wait_for(choice.folder, told.front() != kForeign, patience));
  return choice;
}

}  // namespace fullshard
