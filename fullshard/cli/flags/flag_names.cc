// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/flag_names.h"

#include <CLI/CLI.hpp>

namespace fullshard::cli {

std::set<std::string, std::less<>> flag_names(RunKind kind) {
  CLI::App app;
  const RunArguments arguments(app, kind);
  std::set<std::string, std::less<>> names;
  for (const CLI::Option* option : app.get_subcommand(arguments.name())->get_options()) {
    for (const std::string& name : option->get_lnames()) names.insert("--" + name);
  }
  return names;
}

}  // namespace fullshard::cli
