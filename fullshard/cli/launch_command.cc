#include "fullshard/cli/launch_command.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "fullshard/base/error.h"
#include "fullshard/cli/parse_problem.h"
#include "fullshard/config/plan.h"

namespace fullshard {

LaunchCommand::LaunchCommand(CLI::App& app)
    : command_(app.add_subcommand("launch", "start a program on ranks of this host or several")),
      flags_(*command_),
      config_(*command_) {
  command_->footer(
      "Usage: fullshard launch --ranks N -- PROGRAM [ARGUMENTS]...\n"
      "Ranks, hosts, address and port come from the configuration where no flag names them; the "
      "program finds the file in FULLSHARD_CONFIG.\n"
      "Dashes and underscores are the same; names of torchrun, deepspeed and accelerate are "
      "known.");
  command_->prefix_command();
}

bool LaunchCommand::was_chosen() const { return command_->parsed(); }

// The program may also stand without "--", as for torchrun; but then it is no option.
std::vector<std::string> LaunchCommand::program_of(
    const std::vector<std::string>& words, const std::vector<std::string>& after_dashes) const {
  const auto left = static_cast<ptrdiff_t>(command_->remaining().size());
  const std::vector<std::string> own(words.end() - left, words.end());
  if (!own.empty() && own.front().starts_with('-')) {
    const std::string word = own.front().substr(0, own.front().find('='));
    fail_as(ErrorKind::usage, "launch: no option '{}'{}; see fullshard launch --help", word,
            suggest_option(*command_, word));
  }
  if (!own.empty() && !after_dashes.empty()) {
    fail_as(ErrorKind::usage,
            "launch: '{}' stands before '--'; write the program and all its arguments after it",
            own.front());
  }
  return own.empty() ? after_dashes : own;
}

// The default file is not needed where flags say all; a named one must be right.
void LaunchCommand::take_configuration() {
  const std::string file = config_.file();
  if (file.empty()) return;
  if (!config_.is_named() && flags_.names_ranks()) return;
  const Plan plan = config_.load({});
  std::error_code ignored;
  flags_.take(plan.launch);
  // The program may start in another folder; a text in base64 is its own place.
  const bool is_file = std::filesystem::exists(file, ignored);
  flags_.add_variable("FULLSHARD_CONFIG=" +
                      (is_file ? std::filesystem::absolute(file).string() : file));
}

int LaunchCommand::run(const std::vector<std::string>& words,
                       const std::vector<std::string>& program) {
  const std::vector<std::string> command = program_of(words, program);
  take_configuration();
  return flags_.start(command);
}

}  // namespace fullshard
