// SPDX-License-Identifier: Apache-2.0
// A command line of the Trainer's scripts in our own words.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace fullshard::cli {

// A flag as it was typed, and what it stands for.
struct FlagAlias {
  std::string typed{};  // "--learning_rate"
  std::string own{};    // "--lr"
};

struct TrainerWords {
  std::vector<std::string> words{};  // of the command, with our own flags
  std::vector<FlagAlias> aliases{};
  std::vector<std::string> warnings{};  // flags that make no difference here, and why
  std::vector<std::string> notes{};     // what was made of flags that say two things
};

// `words` begin with the command: train, tune, eval or generate. What is no flag of the Trainer
// stays as it is; a line of `train` with --do_eval and without --do_train becomes one of `eval`.
// Errors are of kind usage: a flag that cannot be had, and two that contradict each other, with
// both names.
TrainerWords translate_trainer_words(const std::vector<std::string>& words);

// A message about "--lr" that says "--learning_rate (--lr)" where that was typed.
std::string with_typed_names(std::string message, std::span<const FlagAlias> aliases);

}  // namespace fullshard::cli
