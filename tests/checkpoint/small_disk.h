// SPDX-License-Identifier: Apache-2.0
// A disk that is full: files may not grow beyond some bytes while it lives. Of the whole process.
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace fullshard::testing {

class SmallDisk {
 public:
  explicit SmallDisk(int64_t most) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(most);
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SmallDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

}  // namespace fullshard::testing
