// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/repeated_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "fullshard/base/printable.h"

namespace fullshard::cli {

void let_last_count(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    // A second positional word does not replace the first.
    const bool is_single = option->get_items_expected_max() <= 1 && !option->get_lnames().empty();
    if (is_single && option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw) {
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
  }
  for (CLI::App* command : app.get_subcommands({})) let_last_count(*command);
}

std::vector<std::string> repeated_flags(const CLI::App& app) {
  std::vector<std::string> notes;
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& values = option->results();
    const bool may_repeat = option->get_items_expected_max() != 1 || option->get_lnames().empty() ||
                            option->get_multi_option_policy() != CLI::MultiOptionPolicy::TakeLast;
    if (may_repeat || values.size() < 2) continue;
    const bool is_same = std::all_of(values.begin(), values.end(), [&](const std::string& value) {
      return value == values.front();
    });
    if (is_same) continue;
    notes.push_back(fmt::format("--{}: is given {} times; the last counts: {}",
                                option->get_lnames().front(), values.size(),
                                base::printable(values.back())));
  }
  for (const CLI::App* command : app.get_subcommands()) {
    const std::vector<std::string> more = repeated_flags(*command);
    notes.insert(notes.end(), more.begin(), more.end());
  }
  return notes;
}

}  // namespace fullshard::cli
