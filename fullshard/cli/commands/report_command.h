// SPDX-License-Identifier: Apache-2.0
// fullshard report DIR…: a run, or several side by side, as one HTML page.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace fullshard::cli {

class ReportCommand {
 public:
  explicit ReportCommand(CLI::App& app);
  ReportCommand(const ReportCommand&) = delete;  // the parser writes into it
  ReportCommand& operator=(const ReportCommand&) = delete;

  bool was_chosen() const;
  int run() const;  // returns the exit status

 private:
  struct Written {
    std::string path;
    bool is_live = false;
    std::string json;  // empty without --json
  };
  Written write() const;
  void show(const Written& written) const;

  CLI::App* command_;
  std::vector<std::string> folders_;
  std::string output_;
  std::string open_ = "no";
  bool watches_ = false;
  bool json_ = false;
};

}  // namespace fullshard::cli
