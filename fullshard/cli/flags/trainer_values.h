// SPDX-License-Identifier: Apache-2.0
// Values of the Trainer's flags, as transformers reads them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::cli {

// "True", "yes", "0", …; nothing where the text is no truth value.
std::optional<bool> truth_of(const std::string& text);
std::optional<double> number_of(const std::string& text);
// The same words, or the same number in other words.
bool is_same_text(const std::string& one, const std::string& other);

// Our name of an optimizer that is the same here, whatever kernel the Trainer would take.
std::optional<std::string_view> optimizer_named(const std::string& name);

// Where metrics go beside the run's own files, as --report-to has it: none, tensorboard, csv or
// all. An Error of kind usage for those that cannot be had.
std::string report_target(const std::string& flag, const std::vector<std::string>& names);

}  // namespace fullshard::cli
