// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/host_name.h"
#include "fullshard/base/text_file.h"
#include "fullshard/report/records/run_file.h"

namespace fullshard::report {
namespace {

using Json = nlohmann::ordered_json;

std::string lock_path(const std::string& folder) { return folder + "/run.lock"; }

// The 22nd field of /proc/PID/stat; the second may contain spaces, but ends with the last ")".
// Absent if there is no such process, or it has ended and is not reaped yet.
std::optional<int64_t> birth_of(int64_t process) {
  std::string text;
  try {
    text = base::find_text_file(fmt::format("/proc/{}/stat", process)).value_or("");
  } catch (const Error&) {
    return std::nullopt;
  }
  size_t place = text.rfind(") ");
  if (place == std::string::npos || text[place + 2] == 'Z') return std::nullopt;
  for (int field = 2; field < 22 && place != std::string::npos; ++field) {
    place = text.find(' ', place + 1);
  }
  if (place == std::string::npos) return std::nullopt;
  int64_t ticks = 0;
  std::from_chars(text.data() + place + 1, text.data() + text.size(), ticks);
  return ticks;
}

RunOwner this_process() {
  return {base::host_name(), ::getpid(), birth_of(::getpid()).value_or(0)};
}

std::string to_text(const RunOwner& owner) {
  return Json{{"host", owner.host}, {"process", owner.process}, {"born", owner.born}}.dump(
             -1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

// Absent if it is empty or not ours.
std::optional<RunOwner> parse_owner(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto number = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
  };
  const auto host = json.find("host");
  if (host == json.end() || !host->is_string() || number("process") <= 0) return std::nullopt;
  return RunOwner{host->get<std::string>(), number("process"), number("born")};
}

std::optional<RunOwner> read_owner(const std::string& folder) {
  constexpr int64_t kLongest = 4096;
  return parse_owner(read_end_of_file(lock_path(folder), kLongest));
}

bool is_alive_here(const RunOwner& owner) {
  return owner.host == base::host_name() && birth_of(owner.process) == owner.born;
}

struct flock whole_file_as(short kind) {
  struct flock lock = {};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  return lock;
}

// The lock belongs to the open file, not to the process: every process that inherits the descriptor
// has it, and it ends when the last of them has closed it.
bool lock(int file) {
  struct flock wanted = whole_file_as(F_WRLCK);
  return ::fcntl(file, F_OFD_SETLK, &wanted) == 0;
}

bool is_taken(int problem) { return problem == EAGAIN || problem == EACCES; }

// A killed launcher leaves ranks that are about to end: waits for them. Otherwise returns at once
// the errno that says why the lock cannot be taken; 0: this process has it.
int lock_unless_owned(int file, const std::string& folder) {
  constexpr auto kPatience = std::chrono::seconds(5);
  constexpr auto kBetweenLooks = std::chrono::milliseconds(20);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!lock(file)) {
    const int problem = errno;
    const auto owner = read_owner(folder);
    const bool is_ending = owner && owner->host == base::host_name() && !is_alive_here(*owner);
    if (!is_taken(problem) || !is_ending || std::chrono::steady_clock::now() > end) return problem;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return 0;
}

void write_owner(int file, const RunOwner& owner) {
  const std::string text = to_text(owner);
  [[maybe_unused]] const bool is_told =
      ::ftruncate(file, 0) == 0 && ::pwrite(file, text.data(), text.size(), 0) >= 0;
}

// Does not follow a link, so that the file it leads to is not written.
int open_lock(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file >= 0) return file;
  const int reason = errno;
  if (reason == ELOOP) {
    fail_as(ErrorKind::input,
            "{}: is a symbolic link, and a lock must be a file of this folder; remove the link, or "
            "name another folder with --output",
            path);
  }
  fail_as(ErrorKind::input, "{}: cannot be written: {}; name another folder with --output", path,
          std::strerror(reason));
}

[[noreturn]] void refuse(const std::string& folder, const RunOwner& owner) {
  fail_as(ErrorKind::usage,
          "{}: is in use by another run ({}); wait for it or end it, or choose another "
          "--output",
          folder, owner.text());
}

// The descriptor that the launcher named, if it is open on this folder's lock.
std::optional<int> handed_down(const std::string& folder, const base::LauncherVariable& named) {
  if (!named) return std::nullopt;
  const int file = std::atoi(named.text->c_str());
  struct stat held = {}, locked = {};
  const bool is_same = file > STDERR_FILENO && ::fstat(file, &held) == 0 &&
                       ::stat(lock_path(folder).c_str(), &locked) == 0 &&
                       held.st_dev == locked.st_dev && held.st_ino == locked.st_ino;
  return is_same ? std::optional(file) : std::nullopt;
}

}  // namespace

std::string RunOwner::text() const {
  if (process == 0) return "a process that has not written its number yet";
  return fmt::format("process {} on host {}", process, host);
}

std::string RunOwner::death() const {
  return text() + " ended unexpectedly: killed, out of memory, or its machine stopped";
}

Ownership find_owner(const std::string& folder) {
  const int file =
      ::open(lock_path(folder).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (file < 0) return {};
  struct flock asked = whole_file_as(F_WRLCK);
  const bool has_locks = ::fcntl(file, F_OFD_GETLK, &asked) == 0;
  ::close(file);
  const auto owner = read_owner(folder);
  if (has_locks && asked.l_type != F_UNLCK) return {OwnerState::live, owner.value_or(RunOwner{})};
  if (!owner) return {};
  if (owner->host != base::host_name()) return {OwnerState::unknown, *owner};
  return {!has_locks && is_alive_here(*owner) ? OwnerState::live : OwnerState::gone, *owner};
}

RunLock::RunLock(const std::string& folder) {
  make_folders(folder);
  file_ = open_lock(lock_path(folder));
  const int problem = lock_unless_owned(file_, folder);
  previous_ = read_owner(folder);
  if (is_taken(problem) || (problem != 0 && previous_ && is_alive_here(*previous_))) {
    ::close(file_);
    refuse(folder, previous_.value_or(RunOwner{}));
  }
  if (problem != 0) {
    warning_ = fmt::format(
        "{}: this file system has no locks ({}): a second run with this --output would be noticed "
        "on this host only",
        folder, std::strerror(problem));
  }
  write_owner(file_, this_process());
}

RunLock RunLock::inherited_or_new(const std::string& folder,
                                  const base::LauncherEnvironment& launcher) {
  const auto file = handed_down(folder, launcher.run_lock);
  if (!file) return RunLock(folder);
  ::fcntl(*file, F_SETFD, FD_CLOEXEC);  // programs that this one starts do not own the run
  RunLock lock;
  lock.file_ = *file;
  return lock;
}

RunLock::RunLock(RunLock&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      previous_(std::move(other.previous_)),
      warning_(std::move(other.warning_)) {}

RunLock::~RunLock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace fullshard::report
