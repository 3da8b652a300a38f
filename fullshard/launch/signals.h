// SIGINT, SIGTERM, SIGHUP and SIGCHLD arrive as reads while this lives, so that one poll waits for
// everything.
#pragma once

#include <csignal>
#include <optional>

namespace fullshard {

class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int descriptor() const { return descriptor_; }
  // The number of one that has arrived.
  std::optional<int> next() const;

 private:
  sigset_t watched_;
  sigset_t before_;
  int descriptor_ = -1;
};

}  // namespace fullshard
