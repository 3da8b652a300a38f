// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/known_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <vector>

#include "fullshard/base/closest.h"
#include "fullshard/base/error.h"

namespace fullshard::cli {

void check_command(const CLI::App& app, std::span<const std::string> words,
                   const std::string& name) {
  std::vector<std::string> known;
  for (const CLI::App* command : app.get_subcommands({})) known.push_back(command->get_name());
  if (known.empty()) return;
  const bool is_first = app.get_parent() == nullptr;
  // The list of all commands is on the help page.
  const std::string all = is_first ? fmt::format("see {} --help", name)
                                   : fmt::format("choose one of {}", fmt::join(known, ", "));
  if (words.empty()) {
    if (app.get_require_subcommand_min() == 0) return;
    fail_as(ErrorKind::usage, "{}: missing subcommand; {}", name, all);
  }
  const std::string& word = words.front();
  if (word.starts_with('-')) return;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() != word) continue;
    return check_command(*command, words.subspan(1), fmt::format("{} {}", name, word));
  }
  const auto near = base::closest(word, known);
  fail_as(ErrorKind::usage, "{}: no command '{}'{}; {}", name, word,
          near ? fmt::format(", did you mean '{}'?", *near) : "", all);
}

}  // namespace fullshard::cli
