// SPDX-License-Identifier: Apache-2.0
// What the value of an option may be. The messages and the hints in the help are ours: those of
// CLI11 differ between its versions. A NaN passes; refuse_nan.h refuses it for all options alike.
#pragma once

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>

namespace fullshard::cli {

CLI::Validator above_zero();
CLI::Validator at_least_zero();
// One of these words, as it is written here.
CLI::Validator one_of(std::initializer_list<std::string_view> words);

// "is 7, expected a number from 1 to 5".
std::string not_within(std::string_view value, double least, double most);

// A number of that type, both ends included.
template <class Number>
CLI::Validator within(Number least, Number most) {
  std::ostringstream hint;
  hint << CLI::detail::type_name<Number>() << " in [" << least << " - " << most << "]";
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        Number value{};
        const bool is_within =
            CLI::detail::lexical_cast(text, value) && !(value < least || most < value);
        return is_within ? ""
                         : not_within(text, static_cast<double>(least), static_cast<double>(most));
      },
      hint.str());
}

}  // namespace fullshard::cli
