// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "fullshard/base/error.h"

namespace fullshard::base {

void open_missing_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // The lowest free number is taken, and those below are open by now.
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF) {
      [[maybe_unused]] const int opened = ::open("/dev/null", O_RDWR);
    }
  }
}

void say(std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(STDERR_FILENO, text.data(), text.size());
    if (wrote < 0 && errno != EINTR) return;
    if (wrote > 0) text.remove_prefix(static_cast<size_t>(wrote));
  }
}

void flush_standard_output() {
  errno = 0;
  const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  const int reason = errno;
  std::clearerr(stdout);
  if (is_written || reason == EPIPE) return;
  fail("standard output: cannot be written: {}; what it should hold is lost",
       reason != 0 ? std::strerror(reason) : "an earlier write failed");
}

}  // namespace fullshard::base
