// SIGINT and SIGTERM as something a training loop can ask for.
#pragma once

#include <csignal>

namespace fullshard {

// While it lives, the first such signal is only remembered; the second ends the process as usual.
// One at a time in a process, on its main thread.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  bool is_asked_for() const;

 private:
  struct sigaction before_[2];
};

}  // namespace fullshard
