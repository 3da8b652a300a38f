// SPDX-License-Identifier: Apache-2.0
// Values of the Trainer's flags, as transformers reads them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::cli {

// Parses "True", "yes", "0", …; nullopt where the text is not a boolean.
std::optional<bool> truth_of(const std::string& text);
std::optional<double> number_of(const std::string& text);
// The same text, or the same number written differently.
bool is_same_text(const std::string& one, const std::string& other);

// Our name of an equivalent optimizer, whatever kernel the Trainer would use.
std::optional<std::string_view> optimizer_named(const std::string& name);

// Where metrics go in addition to the run's own files, as --report-to has it: none, tensorboard,
// csv or all. An Error of kind usage for unsupported targets.
std::string report_target(const std::string& flag, const std::vector<std::string>& names);

}  // namespace fullshard::cli
