// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/parse_problem.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <regex>

#include "fullshard/base/closest.h"
#include "fullshard/cli/flags/trainer_flags.h"
#include "fullshard/cli/flags/words.h"
#include "fullshard/config/schema/synonyms.h"

namespace fullshard::cli {
namespace {

const CLI::App& chosen_command(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : chosen_command(*parsed.front());
}

// "config check" of fullshard config check.
std::string path_of(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  if (parent == nullptr) return "";
  const std::string before = path_of(*parent);
  return before.empty() ? command.get_name() : before + " " + command.get_name();
}

std::string option_name(std::string_view word) {
  return std::string(word.substr(0, word.find('=')));
}

bool is_option(const std::string& word) { return word.size() > 1 && word.starts_with('-'); }

// The word as typed: the parser saw dashes instead of underscores.
std::string as_typed(const std::string& parsed, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (words_for_parser({word}).front() == parsed) return word;
  }
  return parsed;
}

// The error for words that no option or positional takes; empty when there are none.
std::string unknown_words(const CLI::App& command, const std::vector<std::string>& words) {
  const std::string path = path_of(command);
  const std::string help = fmt::format("see fullshard {}{}--help", path, path.empty() ? "" : " ");
  const std::vector<std::string> left = command.remaining();
  const bool has_options = std::any_of(left.begin(), left.end(), is_option);
  std::string text;
  for (const std::string& parsed : left) {
    const std::string word = as_typed(parsed, words);
    if (has_options && !is_option(word)) continue;  // may be an option's value
    if (!text.empty()) text += "\nerror: ";
    text += path.empty() ? "" : path + ": ";
    if (word.ends_with(".py") && takes_trainer_flags(command.get_name())) {
      text += fmt::format("'{}' is not expected: {} is the program itself; leave the script out",
                          word, command.get_name());
      continue;
    }
    text += is_option(word) ? fmt::format("no option '{}'{}; {}", option_name(word),
                                          suggest_option(command, option_name(parsed)), help)
                            : fmt::format("'{}' is not expected; {}", word, help);
  }
  return text;
}

std::string type_of(const CLI::App& command, const std::string& option) {
  const CLI::Option* found = command.get_option_no_throw(option);
  return found != nullptr ? found->get_type_name() : "";
}

// Rewords the messages of CLI11 version 2; any other message stays as it is.
std::string reworded(const CLI::App& command, const std::string& text) {
  std::smatch part;
  if (std::regex_match(text, part, std::regex("Could not convert: (\\S+) = (.*)"))) {
    const bool is_fraction = type_of(command, part.str(1)).starts_with("FLOAT");
    return fmt::format("{}: is '{}', expected {}", part.str(1), part.str(2),
                       is_fraction ? "a number" : "a whole number");
  }
  if (std::regex_match(text, part, std::regex("(.*): \\d+ required .*missing"))) {
    return fmt::format("{}: has no value", part.str(1));
  }
  if (std::regex_match(text, part, std::regex("(.*): At Most 1 required but received (\\d+)"))) {
    return fmt::format("{}: is given {} times; keep one of them", part.str(1), part.str(2));
  }
  if (std::regex_match(text, part, std::regex("(\\S+) is required"))) {
    return fmt::format("{}: {} is required; see fullshard {} --help", path_of(command), part.str(1),
                       path_of(command));
  }
  if (std::regex_match(text, part, std::regex("(\\S+) excludes (\\S+)"))) {
    return fmt::format("{}: given together with {}; keep one of them", part.str(1), part.str(2));
  }
  return text;
}

// With dashes, as the parser sees all options.
void add_trainer_names(std::vector<std::string>& names) {
  for (const TrainerFlag& flag : trainer_flags()) {
    if (flag.kind == TrainerFlagKind::refused) continue;
    std::string name = fmt::format("--{}", flag.name);
    std::replace(name.begin(), name.end(), '_', '-');
    names.push_back(std::move(name));
  }
}

std::string as_trainer_spells(std::string name) {
  std::replace(name.begin() + 2, name.end(), '-', '_');
  return name;
}

}  // namespace

std::string suggest_option(const CLI::App& command, std::string_view word) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const auto suggestion = [](std::string_view name) {
    return fmt::format(", did you mean '{}'?", name);
  };
  if (const config::Synonym* synonym =
          config::find_synonym(word.substr(std::min<size_t>(2, word.size())))) {
    std::string name = fmt::format("--{}", synonym->flag);
    std::replace(name.begin(), name.end(), '_', '-');
    if (std::find(names.begin(), names.end(), name) != names.end()) return suggestion(name);
  }
  const size_t num_own = names.size();
  // The Trainer's flags are translated before the parser sees them; misspelt ones remain.
  if (takes_trainer_flags(command.get_name())) add_trainer_names(names);
  const auto near = base::closest(word, names);
  if (!near) return "";
  const bool is_own = std::find(names.begin(), names.begin() + static_cast<ptrdiff_t>(num_own),
                                *near) != names.begin() + static_cast<ptrdiff_t>(num_own);
  return suggestion(is_own ? *near : as_trainer_spells(*near));
}

std::string parse_problem(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& words) {
  const CLI::App& command = chosen_command(app);
  std::string unknown = unknown_words(command, words);
  return unknown.empty() ? reworded(command, error.what()) : unknown;
}

}  // namespace fullshard::cli
