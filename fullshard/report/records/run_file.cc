// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/run_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/folder_names.h"
#include "fullshard/base/write_problem.h"

namespace fullshard::report {
namespace {

// Closes the descriptor in its destructor.
class OpenFile {
 public:
  OpenFile(const std::string& path, int flags)
      : file_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~OpenFile() {
    if (file_ >= 0) ::close(file_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return file_; }

 private:
  int file_;
};

bool write_and_sync(const std::string& path, std::string_view text) {
  const OpenFile file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (file.get() < 0) return false;
  while (!text.empty()) {
    const ssize_t wrote = ::write(file.get(), text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    text.remove_prefix(static_cast<size_t>(wrote));
  }
  return ::fsync(file.get()) == 0 || errno == EINVAL;
}

// The process in "run.json.1234.part", for a file called run.json.
std::optional<pid_t> process_of(std::string_view unfinished, std::string_view name) {
  constexpr std::string_view kEnd = ".part";
  if (!unfinished.starts_with(name) || !unfinished.ends_with(kEnd)) return std::nullopt;
  unfinished.remove_prefix(name.size());
  unfinished.remove_suffix(std::min(kEnd.size(), unfinished.size()));
  if (!unfinished.starts_with('.')) return std::nullopt;
  unfinished.remove_prefix(1);
  pid_t process = 0;
  const char* end = unfinished.data() + unfinished.size();
  const auto [stop, problem] = std::from_chars(unfinished.data(), end, process);
  const bool is_number = problem == std::errc() && stop == end && process > 0;
  return is_number ? std::optional(process) : std::nullopt;
}

}  // namespace

std::string read_end_of_file(const std::string& path, int64_t bytes) {
  if (!base::is_file(path)) return {};
  const OpenFile file(path, O_RDONLY | O_NONBLOCK);
  if (file.get() < 0) return {};
  const int64_t size = ::lseek(file.get(), 0, SEEK_END);
  std::string text(static_cast<size_t>(bytes), '\0');
  ssize_t got = 0;
  do {
    got = ::pread(file.get(), text.data(), text.size(), std::max<int64_t>(0, size - bytes));
  } while (got < 0 && errno == EINTR);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

void write_whole_file(const std::string& path, std::string_view text) {
  if (base::is_special_file(path)) {
    fail_as(ErrorKind::input, "{}: is not a regular file; name another place", path);
  }
  // Named after the process: two writers must not share it.
  const std::string beside = fmt::format("{}.{}.part", path, ::getpid());
  if (write_and_sync(beside, text) && std::rename(beside.c_str(), path.c_str()) == 0) return;
  const int reason = errno;
  ::unlink(beside.c_str());
  fail_as(base::kind_of_write_problem(reason),
          "{}: cannot be written: {}; make room, or name another place", path,
          std::strerror(reason));
}

void remove_unfinished_files(const std::string& folder, const std::vector<std::string>& names) {
  for (const std::string& found : base::names_in_folder(folder)) {
    for (const std::string& name : names) {
      const auto process = process_of(found, name);
      // Another command may be writing there at the moment.
      if (process && ::kill(*process, 0) != 0 && errno == ESRCH) {
        ::unlink((folder + "/" + found).c_str());
      }
    }
  }
}

void make_folders(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), 0777) != 0 && errno != EEXIST) {
      const int reason = errno;
      fail_as(base::kind_of_write_problem(reason), "{}: cannot be made: {}", part,
              std::strerror(reason));
    }
    if (end == std::string::npos) return;
  }
}

double last_write_time(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return 0;
  return static_cast<double>(status.st_mtim.tv_sec) +
         1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
}

}  // namespace fullshard::report
