// SPDX-License-Identifier: Apache-2.0
// An output folder has one owner at a time. The owner holds a lock on DIR/run.lock, which the
// kernel takes away when the last process that holds it is gone, however it went; the file says
// who it is, or was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fullshard/base/launcher_environment.h"

namespace fullshard::report {

struct RunOwner {
  std::string host{};
  int64_t process = 0;
  int64_t born = 0;  // ticks since the machine started, so that a number used again is noticed

  std::string text() const;  // "process 1234 on host node1"
  // Why a run ended whose record still says that it runs.
  std::string death() const;
};

enum class OwnerState {
  none,     // nobody has ever owned the folder
  live,     // somebody owns it
  gone,     // whoever owned it has ended
  unknown,  // it was a process of another host, whose locks may not be seen here
};

struct Ownership {
  OwnerState state = OwnerState::none;
  RunOwner owner{};
};

// Looks only: neither waits nor gets into the way of anybody who takes the lock.
Ownership find_owner(const std::string& folder);

// Held by the process that answers for a run: the launcher, together with the ranks that it hands
// the lock to, or rank 0 where another program started the ranks.
class RunLock {
 public:
  // Makes the folder if need be. An Error of kind usage that names the owner when there is one.
  explicit RunLock(const std::string& folder);
  // The lock that the launcher handed down, if it is this folder's; else as above.
  static RunLock inherited_or_new(const std::string& folder,
                                  const base::LauncherEnvironment& launcher);
  ~RunLock();
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&&) = delete;

  // For LaunchOptions::kept_open; LauncherEnvironment::kRunLock tells the ranks its number.
  int descriptor() const { return file_; }

  // Who owned the folder before, if anybody did.
  const std::optional<RunOwner>& previous() const { return previous_; }
  // Empty, or that this file system has no locks, so that a second run is noticed on this host
  // only.
  const std::string& warning() const { return warning_; }

 private:
  RunLock() = default;

  int file_ = -1;
  std::optional<RunOwner> previous_;
  std::string warning_;
};

}  // namespace fullshard::report
