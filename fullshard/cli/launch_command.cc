#include "fullshard/cli/launch_command.h"

#include <CLI/CLI.hpp>

namespace fullshard {

LaunchCommand::LaunchCommand(CLI::App& app)
    : command_(app.add_subcommand("launch", "start a program on several ranks of this host")) {
  command_->footer("Usage: fullshard launch --ranks N -- PROGRAM [ARGUMENTS]...");
  command_->add_option("-n,--ranks", options_.ranks, "how many ranks")
      ->required()
      ->check(CLI::Range(1, 4096));
  command_
      ->add_option("--grace", grace_seconds_,
                   "seconds that ranks may take to end before they are killed")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
}

bool LaunchCommand::was_chosen() const { return command_->parsed(); }

int LaunchCommand::run(const std::vector<std::string>& program) {
  options_.command = program;
  options_.grace = std::chrono::milliseconds(static_cast<int64_t>(grace_seconds_ * 1000));
  return launch(options_).status;
}

}  // namespace fullshard
