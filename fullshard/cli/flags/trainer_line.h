// SPDX-License-Identifier: Apache-2.0
// A command line of the Trainer's scripts as it was typed: which of its flags are the Trainer's and
// which are ours.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/cli/flags/trainer_flags.h"

namespace fullshard::cli {

// A flag of the Trainer with the values behind it.
struct GivenFlag {
  const TrainerFlag* flag;
  std::string typed;  // with dashes, without a value
  std::vector<std::string> values;
  size_t at;  // which word of the line it is

  const std::string& value() const;  // the first; an Error of kind usage where there is none
  bool is_true() const;              // without a value too; an Error for other words
};

struct OwnFlag {
  std::string name{};   // with dashes, as our table has it
  std::string value{};  // all values, one blank apart
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

// `is_own` tells flags of the Trainer that the command has itself, by the name that was typed; what
// is none of the Trainer's is ours, for the parser to complain of.
TrainerLine read_trainer_line(
    const std::vector<std::string>& words,
    const std::function<bool(const std::string& typed, const TrainerFlag& flag)>& is_own);

}  // namespace fullshard::cli
