// SPDX-License-Identifier: Apache-2.0
// fullshard watch DIR: a running run in the terminal, until it ends.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace fullshard::cli {

class WatchCommand {
 public:
  explicit WatchCommand(CLI::App& app);
  WatchCommand(const WatchCommand&) = delete;  // the parser writes into it
  WatchCommand& operator=(const WatchCommand&) = delete;

  bool was_chosen() const;
  // Returns the exit status: 0 when the run finished, 1 when it failed, 130 when interrupted.
  int run() const;

 private:
  CLI::App* command_;
  std::string folder_;
};

}  // namespace fullshard::cli
