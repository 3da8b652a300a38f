// fullshard launch --ranks N -- PROGRAM ARGS…
#pragma once

#include <string>
#include <vector>

#include "fullshard/launch/launch.h"

namespace CLI {
class App;
}

namespace fullshard {

class LaunchCommand {
 public:
  explicit LaunchCommand(CLI::App& app);
  LaunchCommand(const LaunchCommand&) = delete;  // the parser writes into it
  LaunchCommand& operator=(const LaunchCommand&) = delete;

  bool was_chosen() const;
  // `program` is what followed "--"; gives the exit status.
  int run(const std::vector<std::string>& program);

 private:
  CLI::App* command_;
  LaunchOptions options_;
  double grace_seconds_ = 5;
};

}  // namespace fullshard
