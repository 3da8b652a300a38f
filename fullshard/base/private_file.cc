// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fullshard/base/error.h"

namespace fullshard::base {

std::string read_private_line(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    fail_as(ErrorKind::usage, "{}: cannot be read: {}", path, std::strerror(errno));
  }
  struct stat facts = {};
  char buffer[1024];
  const ssize_t got = ::fstat(file, &facts) == 0 ? ::read(file, buffer, sizeof buffer) : -1;
  ::close(file);
  if (facts.st_uid != ::geteuid() || (facts.st_mode & 077) != 0) {
    fail_as(ErrorKind::usage,
            "{}: has mode {:04o} and belongs to user {}, but holds a secret; make it yours alone "
            "(chmod 600)",
            path, facts.st_mode & 07777U, facts.st_uid);
  }
  const std::string text(buffer, got > 0 ? static_cast<size_t>(got) : 0);
  const std::string line = text.substr(0, text.find('\n'));
  if (line.empty()) fail_as(ErrorKind::usage, "{}: its first line is empty", path);
  return line;
}

}  // namespace fullshard::base
