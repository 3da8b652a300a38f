// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/report_command.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <thread>

#include "fullshard/base/standard_streams.h"
#include "fullshard/report/html_report.h"
#include "fullshard/report/run_record.h"
#include "fullshard/report/run_start.h"
#include "fullshard/report/run_summary.h"

namespace fullshard::cli {
namespace {

constexpr auto kBetweenPages = std::chrono::seconds(10);

void open_in_browser(const std::string& path) {
  const std::string program = "xdg-open";
  char* const words[] = {const_cast<char*>(program.c_str()), const_cast<char*>(path.c_str()),
                         nullptr};
  pid_t child = 0;
  const int problem = ::posix_spawnp(&child, program.c_str(), nullptr, nullptr, words, environ);
  int status = 0;
  if (problem == 0) ::waitpid(child, &status, 0);
  if (problem != 0 || status != 0) {
    fmt::print(stderr, "warning: report: {} could not open the page; open {} yourself\n", program,
               path);
  }
}

}  // namespace

ReportCommand::ReportCommand(CLI::App& app)
    : command_(app.add_subcommand("report", "a finished or running run as one HTML page")) {
  command_->add_option("folder", folder_, "what the run was given as --output")->required();
  command_->add_option("-o,--output", output_, "the page, in place of report.html in the folder");
  command_->add_option("--open", open_, "yes: show it in the browser")
      ->check(CLI::IsMember({"yes", "no"}))
      ->capture_default_str();
  command_->add_flag("--json", json_, "the run in numbers as a JSON object, in place of the path");
  command_->add_flag("--watch", watches_, "write it anew every 10 s until the run ends");
}

bool ReportCommand::was_chosen() const { return command_->parsed(); }

int ReportCommand::run() const {
  if (report::close_dead_run(folder_)) {
    base::say(fmt::format("note: {}: the run had not said how it ended; {}\n", folder_,
                          read_run_record(folder_ + "/run.json").problem));
  }
  report::WrittenReport written = report::write_html_report(folder_, output_);
  show(written);
  if (open_ == "yes") open_in_browser(written.path);
  while (watches_ && written.is_live) {
    std::this_thread::sleep_for(kBetweenPages);
    written = report::write_html_report(folder_, output_);
    if (json_) show(written);
  }
  return 0;
}

void ReportCommand::show(const report::WrittenReport& written) const {
  fmt::print("{}\n", json_ ? report::run_summary_json(written.run, written.path, written.is_live)
                           : written.path);
  std::fflush(stdout);
}

}  // namespace fullshard::cli
