// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::report {
namespace {

// Returns how many bytes were written; fewer than all only with errno set.
size_t write_all(int file, std::string_view text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(file, text.data() + done, text.size() - done);
    if (wrote > 0) {
      done += static_cast<size_t>(wrote);
    } else if (errno != EINTR) {
      break;
    }
  }
  return done;
}

}  // namespace

AppendFile::AppendFile(std::string path) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) {
    fail_as(ErrorKind::input, "{}: cannot be written: {}; name another folder with --output", path_,
            std::strerror(errno));
  }
}

AppendFile::~AppendFile() { ::close(file_); }

int64_t AppendFile::bytes() const { return ::lseek(file_, 0, SEEK_END); }

void AppendFile::cut(int64_t bytes) {
  if (::ftruncate(file_, bytes) != 0) {
    fail_as(ErrorKind::input, "{}: cannot be cut to {} bytes: {}", path_, bytes,
            std::strerror(errno));
  }
}

std::optional<std::string> AppendFile::append(std::string_view text) {
  const int64_t start = bytes();
  if (write_all(file_, text) == text.size()) return std::nullopt;
  const std::string cause = std::strerror(errno);
  // Half an entry would disturb the next run. If this fails too, its reader skips it.
  [[maybe_unused]] const int ignored = ::ftruncate(file_, start);
  return cause;
}

}  // namespace fullshard::report
