// SPDX-License-Identifier: Apache-2.0
// fullshard launch --ranks N -- PROGRAM ARGS…
#pragma once

#include <string>
#include <vector>

#include "fullshard/cli/flags/accelerate_flags.h"
#include "fullshard/cli/flags/config_flags.h"
#include "fullshard/cli/flags/launch_flags.h"

namespace CLI {
class App;
}

namespace fullshard::cli {

class LaunchCommand {
 public:
  explicit LaunchCommand(CLI::App& app);
  LaunchCommand(const LaunchCommand&) = delete;  // the parser writes into it
  LaunchCommand& operator=(const LaunchCommand&) = delete;

  bool was_chosen() const;
  // `words` as the user wrote them, up to "--"; `after` is the rest, from "--" on. Returns the exit
  // status.
  int run(const std::vector<std::string>& words, const std::vector<std::string>& after);

 private:
  std::vector<std::string> program_of(const std::vector<std::string>& words,
                                      const std::vector<std::string>& after) const;
  void take_configuration();
  void take_accelerate_flags();

  CLI::App* command_;
  LaunchFlags flags_;
  ConfigFlags config_;
  AccelerateFlags accelerate_;
};

}  // namespace fullshard::cli
