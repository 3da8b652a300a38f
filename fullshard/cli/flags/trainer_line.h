// SPDX-License-Identifier: Apache-2.0
// A command line of the Trainer's scripts as typed, split into the Trainer's flags and ours.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/cli/flags/trainer_flags.h"

namespace fullshard::cli {

// A flag of the Trainer with the values after it.
struct GivenFlag {
  const TrainerFlag* flag;
  std::string typed;  // with dashes, without a value
  std::vector<std::string> values;
  size_t at;  // which word of the line it is

  const std::string& value() const;  // the first; an Error of kind usage where there is none
  bool is_true() const;              // also without a value; an Error for other words
};

struct OwnFlag {
  std::string name{};   // with dashes, as our table has it
  std::string value{};  // all values, separated by blanks
  std::vector<std::string> words{};
  size_t at = 0;
};

struct TrainerLine {
  std::vector<std::string> command{};  // what stands before the first flag
  std::vector<OwnFlag> own{};
  std::vector<GivenFlag> given{};    // each flag once, as it was given last
  std::vector<std::string> notes{};  // flags that were given several times

  const GivenFlag* find(std::string_view name) const;  // null: it was not given
};

// `is_own` tells whether the command itself has this flag of the Trainer, by the name that was
// typed. All other words are kept as ours, and the parser reports unknown ones.
TrainerLine read_trainer_line(
    const std::vector<std::string>& words,
    const std::function<bool(const std::string& typed, const TrainerFlag& flag)>& is_own);

}  // namespace fullshard::cli
