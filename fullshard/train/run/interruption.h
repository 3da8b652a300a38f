// SPDX-License-Identifier: Apache-2.0
// SIGINT, SIGTERM and SIGHUP as something a training loop can ask for.
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace fullshard::train {

// While it lives, the first such signal is only remembered; a second SIGINT or SIGTERM ends the
// process as usual. (A terminal that closes may send SIGHUP more than once, and timeout(1) sends
// its signal twice at a time: neither has been asked twice.) A SIGHUP or SIGINT that is ignored,
// as under nohup and in the background of a script, stays so. One at a time in a process, on its
// main thread.
class Interruption {
 public:
  // On the first signal `notice` is put on standard error, as "note: SIGTERM: …"; empty: nothing
  // is. `lead` comes before that, such as the end of a line that is drawn there.
  explicit Interruption(const std::string& notice = "", const std::string& lead = "");
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  bool is_asked_for() const;
  int signal() const;                        // the first; 0: none
  std::vector<std::string> ignored() const;  // those that stay so: "SIGINT"

  // What was to be done is done: until the process ends, and after this object, such signals change
  // nothing any more.
  void ignore_from_now();

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction before_[3] = {};
};

// "SIGTERM", for the numbers above.
std::string interruption_name(int signal);

}  // namespace fullshard::train
