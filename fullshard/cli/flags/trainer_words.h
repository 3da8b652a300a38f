// SPDX-License-Identifier: Apache-2.0
// Translates a command line of the Trainer's scripts into our own flags.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace fullshard::cli {

// A flag as typed, and our flag that it stands for.
struct FlagAlias {
  std::string typed{};  // "--learning_rate"
  std::string own{};    // "--lr"
};

struct TrainerWords {
  std::vector<std::string> words{};  // the command with our own flags
  std::vector<FlagAlias> aliases{};
  std::vector<std::string> warnings{};  // flags without effect, and why
  std::vector<std::string> notes{};     // how conflicting flags were resolved
};

// `words` begin with the command: train, tune, eval or generate. Words other than the Trainer's
// flags stay as they are; a line of `train` with --do_eval and without --do_train becomes one of
// `eval`. Errors are of kind usage: an unsupported flag, and two that contradict each other, with
// both names.
TrainerWords translate_trainer_words(const std::vector<std::string>& words);

// Replaces "--lr" in a message by "--learning_rate (--lr)" where that was typed.
std::string with_typed_names(std::string message, std::span<const FlagAlias> aliases);

}  // namespace fullshard::cli
