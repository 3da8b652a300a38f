// SPDX-License-Identifier: Apache-2.0
// fullshard report DIR: a run as one HTML page.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace fullshard::report {
struct WrittenReport;
}  // namespace fullshard::report

namespace fullshard::cli {

class ReportCommand {
 public:
  explicit ReportCommand(CLI::App& app);
  ReportCommand(const ReportCommand&) = delete;  // the parser writes into it
  ReportCommand& operator=(const ReportCommand&) = delete;

  bool was_chosen() const;
  int run() const;  // gives the exit status

 private:
  void show(const report::WrittenReport& written) const;

  CLI::App* command_;
  std::string folder_;
  std::string output_;
  std::string open_ = "no";
  bool watches_ = false;
  bool json_ = false;
};

}  // namespace fullshard::cli
