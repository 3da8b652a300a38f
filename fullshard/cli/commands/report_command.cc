// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/commands/report_command.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <thread>

#include "fullshard/base/error.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/cli/flags/value_checks.h"
#include "fullshard/report/comparison_page.h"
#include "fullshard/report/html_report.h"
#include "fullshard/report/records/run_record.h"
#include "fullshard/report/records/run_start.h"
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
    : command_(app.add_subcommand("report", "finished or running runs as one HTML page")) {
  command_->add_option("folders", folders_, "a run's --output folder, or those of several runs")
      ->required();
  command_->add_option(
      "-o,--output", output_,
      "the page, in place of report.html in the folder, or of comparison.html here");
  command_->add_option("--open", open_, "yes: show it in the browser")
      ->check(one_of({"yes", "no"}))
      ->capture_default_str();
  command_->add_flag("--json", json_, "the run in numbers as a JSON object, in place of the path");
  command_->add_flag("--watch", watches_, "rewrite it every 10 s until the runs end");
}

bool ReportCommand::was_chosen() const { return command_->parsed(); }

ReportCommand::Written ReportCommand::write() const {
  if (folders_.size() == 1) {
    const report::WrittenReport written = report::write_html_report(folders_[0], output_);
    return {written.path, written.is_live,
            json_ ? report::run_summary_json(written.run, written.path, written.is_live) : ""};
  }
  const auto written =
      report::write_html_comparison(folders_, output_.empty() ? "comparison.html" : output_);
  return {written.path, written.is_live, json_ ? report::comparison_json(written) : ""};
}

int ReportCommand::run() const {
  if (folders_.size() > report::kMostComparedRuns) {
    fail_as(ErrorKind::usage,
            "report: {} runs, but at most {} can be told apart on a page; name fewer",
            folders_.size(), report::kMostComparedRuns);
  }
  for (const std::string& folder : folders_) {
    if (!report::close_dead_run(folder)) continue;
    base::say(fmt::format("note: {}: the run did not record how it ended; {}\n", folder,
                          read_run_record(folder + "/run.json").problem));
  }
  Written written = write();
  show(written);
  if (open_ == "yes") open_in_browser(written.path);
  while (watches_ && written.is_live) {
    std::this_thread::sleep_for(kBetweenPages);
    written = write();
    if (json_) show(written);
  }
  return 0;
}

void ReportCommand::show(const Written& written) const {
  fmt::print("{}\n", json_ ? written.json : written.path);
  std::fflush(stdout);
}

}  // namespace fullshard::cli
