// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/commands/launch_command.h"

#include <CLI/CLI.hpp>

#include "fullshard/base/error.h"
#include "fullshard/cli/flags/parse_problem.h"
#include "fullshard/config/plan.h"

namespace fullshard::cli {

LaunchCommand::LaunchCommand(CLI::App& app)
    : command_(app.add_subcommand("launch", "start a program on ranks of this host or several")),
      flags_(*command_),
      config_(*command_),
      accelerate_(*command_) {
  command_->footer(
      "Usage: fullshard launch --ranks N -- PROGRAM [ARGUMENTS]...\n"
      "Ranks, hosts, address and port come from the configuration where no flag names them. What "
      "stands before the program is launch's, what follows it the program's; the program finds "
      "launch's --config, --deepspeed, --fsdp, --fsdp-config and --set in its environment.\n"
      "Dashes and underscores are the same; names of torchrun, deepspeed and accelerate are known. "
      "What flags of `accelerate launch` say of the model goes over a file of Accelerate's, and "
      "without one into the variables that programs of Accelerate read.");
  command_->prefix_command();
}

bool LaunchCommand::was_chosen() const { return command_->parsed(); }

// The program may also follow without "--", as for torchrun; then its name must not look like an
// option, and a later "--" belongs to it. `after` begins with "--" if there is one.
std::vector<std::string> LaunchCommand::program_of(const std::vector<std::string>& words,
                                                   const std::vector<std::string>& after) const {
  const auto left = static_cast<ptrdiff_t>(command_->remaining().size());
  std::vector<std::string> own(words.end() - left, words.end());
  if (!own.empty() && own.front().starts_with('-')) {
    const std::string word = own.front().substr(0, own.front().find('='));
    fail_as(ErrorKind::usage, "launch: no option '{}'{}; see fullshard launch --help", word,
            suggest_option(*command_, word));
  }
  const bool begins_after = own.empty() && !after.empty();
  own.insert(own.end(), after.begin() + (begins_after ? 1 : 0), after.end());
  return own;
}

// Overrides an Accelerate file; without one sets the variables that Accelerate's launcher sets.
void LaunchCommand::take_accelerate_flags() {
  accelerate_.check();
  flags_.take(accelerate_.launch());
  for (const std::string& variable : accelerate_.variables_of_launch()) {
    flags_.add_variable(variable);
  }
  if (!accelerate_.has_settings()) return;
  const std::string file = config_.file();
  if (file.empty() && !config_.is_named()) {
    for (const std::string& variable : accelerate_.variables()) flags_.add_variable(variable);
    return;
  }
  const Plan plan = config_.load({}, true);
  if (plan.settings() == nullptr || plan.settings()->family() != config::Family::accelerate) {
    fail_as(ErrorKind::usage,
            "launch: {}: is a setting of Accelerate's files, but {} is not one; set it there "
            "by its own key",
            accelerate_.first_setting(), file.empty() ? "--fsdp" : file);
  }
  config_.add_overrides(accelerate_.overrides());
}

// The default file is not needed where flags give everything; a named one must be valid.
void LaunchCommand::take_configuration() {
  take_accelerate_flags();
  const bool is_asked_for =
      config_.is_named() || config_.has_overrides() || accelerate_.has_settings();
  if (!is_asked_for && (config_.file().empty() || flags_.names_ranks())) return;
  flags_.take(config_.load({}).launch);
  for (const std::string& variable : config_.for_ranks().variables()) {
    flags_.add_variable(variable);
  }
  flags_.name_config(config_.file().empty() ? "launch's flags for the configuration"
                                            : config_.file());
}

int LaunchCommand::run(const std::vector<std::string>& words,
                       const std::vector<std::string>& after) {
  const std::vector<std::string> command = program_of(words, after);
  take_configuration();
  return flags_.start(command).status;
}

}  // namespace fullshard::cli
