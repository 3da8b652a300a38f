// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/value_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "fullshard/config/document/document.h"

namespace fullshard::cli {
namespace {

std::optional<double> number_in(const std::string& text) {
  std::string copy = text;
  double value = 0;
  if (!CLI::detail::lexical_cast(copy, value)) return std::nullopt;
  return value;
}

}  // namespace

CLI::Validator above_zero() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        const auto value = number_in(text);
        return value && !(*value <= 0) ? "" : fmt::format("is {}, expected a number above 0", text);
      },
      "POSITIVE");
}

CLI::Validator at_least_zero() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        const auto value = number_in(text);
        return value && !(*value < 0) ? ""
                                      : fmt::format("is {}, expected a number of at least 0", text);
      },
      "NONNEGATIVE");
}

CLI::Validator one_of(std::initializer_list<std::string_view> words) {
  const std::vector<std::string> allowed(words.begin(), words.end());
  return CLI::Validator(
      [allowed](const std::string& text) -> std::string {
        if (std::ranges::find(allowed, text) != allowed.end()) return "";
        const std::string first =
            fmt::format("{}", fmt::join(allowed.begin(), allowed.end() - 1, ", "));
        return fmt::format("is '{}', expected {}{}{}", text, first, first.empty() ? "" : " or ",
                           allowed.back());
      },
      fmt::format("{{{}}}", fmt::join(allowed, ",")));
}

std::string not_within(std::string_view value, double least, double most) {
  return fmt::format("is {}, expected a number from {} to {}", value, config::format_number(least),
                     config::format_number(most));
}

}  // namespace fullshard::cli
