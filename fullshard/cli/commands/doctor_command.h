// SPDX-License-Identifier: Apache-2.0
// fullshard doctor: what this machine supports; doctor --report RUN: what a bug report needs.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace fullshard::cli {

class DoctorCommand {
 public:
  explicit DoctorCommand(CLI::App& app);
  DoctorCommand(const DoctorCommand&) = delete;  // the parser writes into it
  DoctorCommand& operator=(const DoctorCommand&) = delete;

  bool was_chosen() const;
  int run() const;  // returns the exit status

 private:
  CLI::App* command_;
  std::string run_folder_;
  std::string output_;
  bool json_ = false;
};

}  // namespace fullshard::cli
