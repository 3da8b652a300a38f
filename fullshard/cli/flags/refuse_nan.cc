// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/refuse_nan.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <string>

namespace fullshard::cli {
namespace {

std::string nan_problem(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr))
             ? fmt::format("is {}, expected a number", text)
             : "";
}

}  // namespace

void refuse_nan(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (option->get_type_name().starts_with("FLOAT")) option->check(nan_problem);
  }
}

}  // namespace fullshard::cli
