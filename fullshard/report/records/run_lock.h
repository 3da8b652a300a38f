// SPDX-License-Identifier: Apache-2.0
// An output folder has one owner at a time. The owner holds a lock on DIR/run.lock, which the
// kernel releases when the last process that holds it has ended, in whatever way; the file names
// the present or last owner.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fullshard/base/launcher_environment.h"

namespace fullshard::report {

struct RunOwner {
  std::string host{};
  int64_t process = 0;
  int64_t born = 0;  // ticks since the machine started, to notice a reused process number

  std::string text() const;  // "process 1234 on host node1"
  // Why a run has ended whose record still says that it is running.
  std::string death() const;
};

enum class OwnerState {
  none,     // no process has ever owned the folder
  live,     // a process owns it
  gone,     // its owner has ended
  unknown,  // the owner is a process of another host, whose locks may not be visible here
};

struct Ownership {
  OwnerState state = OwnerState::none;
  RunOwner owner{};
};

// Only looks: neither waits nor disturbs a process that takes the lock.
Ownership find_owner(const std::string& folder);

// Held by the process that is responsible for a run: the launcher, together with the ranks that it
// gives the lock to, or rank 0 where another program started the ranks.
class RunLock {
 public:
  // Creates the folder if necessary. Throws Error of kind usage that names the owner if there is
  // one.
  explicit RunLock(const std::string& folder);
  // The lock that the launcher passed on, if it is this folder's; otherwise as above.
  static RunLock inherited_or_new(const std::string& folder,
                                  const base::LauncherEnvironment& launcher);
  ~RunLock();
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&&) = delete;

  // For LaunchOptions::kept_open; LauncherEnvironment::kRunLock gives its number to the ranks.
  int descriptor() const { return file_; }

  // The previous owner of the folder, if there was one.
  const std::optional<RunOwner>& previous() const { return previous_; }
  // Empty, or a warning that this file system has no locks, so that a second run is noticed on this
  // host only.
  const std::string& warning() const { return warning_; }

 private:
  RunLock() = default;

  int file_ = -1;
  std::optional<RunOwner> previous_;
  std::string warning_;
};

}  // namespace fullshard::report
