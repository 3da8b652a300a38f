// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/commands/doctor_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "fullshard/base/error.h"
#include "fullshard/config/document/document.h"
#include "fullshard/launch/machine_facts.h"
#include "fullshard/launch/run_report.h"
#include "fullshard/report/records/run_start.h"

namespace fullshard::cli {
namespace {

std::string facts_json(const std::vector<launch::Fact>& facts) {
  bool ok = true;
  std::string rows;
  for (const launch::Fact& fact : facts) {
    ok = ok && fact.kind != launch::Fact::Kind::problem;
    rows += fmt::format(R"({}  {{"subject": {}, "found": {}, "meaning": {}, "kind": "{}"}})",
                        rows.empty() ? "\n" : ",\n", config::quote_json(fact.subject),
                        config::quote_json(fact.found), config::quote_json(fact.meaning),
                        launch::name_of(fact.kind));
  }
  return fmt::format("{{\"ok\": {}, \"facts\": [{}\n]}}\n", ok, rows);
}

}  // namespace

DoctorCommand::DoctorCommand(CLI::App& app)
    : command_(app.add_subcommand("doctor", "what this machine can do, and what is missing")) {
  auto* report = command_->add_option(
      "--report", run_folder_, "a run's folder: bundle what a report about it needs into one text");
  command_->add_flag("--json", json_, "machine-readable standard output")->excludes(report);
  command_->add_option("--output", output_, "write the text there, not to standard output");
}

bool DoctorCommand::was_chosen() const { return command_->parsed(); }

int DoctorCommand::run() const {
  if (!run_folder_.empty())
    report::close_dead_run(run_folder_);  // so that run.json tells how it ended
  const std::string text = !run_folder_.empty() ? launch::run_report(run_folder_)
                           : json_              ? facts_json(launch::machine_facts())
                                                : launch::facts_text(launch::machine_facts());
  if (output_.empty()) {
    fmt::print("{}", text);
    return 0;
  }
  std::ofstream file(output_);
  if (!(file << text && file.flush())) {
    fail_as(ErrorKind::input, "doctor: cannot write '{}': {}", output_, std::strerror(errno));
  }
  return 0;
}

}  // namespace fullshard::cli
