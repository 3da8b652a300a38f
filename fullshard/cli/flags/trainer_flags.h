// SPDX-License-Identifier: Apache-2.0
// The flags of transformers' Trainer and of its example scripts (run_clm, run_mlm,
// run_translation), and what each means here. One table: `train`, `eval` and `generate` read it and
// docs/train_command.md lists it.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fullshard::cli {

enum class TrainerFlagKind {
  same,       // a flag of ours has this name
  value,      // our flag with the same value
  truth,      // our flag if it is true, no flag if it is false
  special,    // its meaning depends on its value or on other flags: trainer_words.cc
  no_effect,  // a warning says why
  refused,    // an error says why, unless it is switched off
};

struct TrainerFlag {
  std::string_view name;  // with underscores, without the dashes in front
  TrainerFlagKind kind;
  std::string_view own;  // our flags for it, as the page shows them; empty: none
  // The page's note after `own`; for no_effect and refused also the message's reason.
  std::string_view note = "";
};

std::span<const TrainerFlag> trainer_flags();
// Whether a command of that name reads them: train, tune, eval and generate.
bool takes_trainer_flags(std::string_view command);
// By a name without the dashes in front; dashes and underscores are the same. Null: not in the
// table.
const TrainerFlag* find_trainer_flag(std::string_view name);

// The table of docs/train_command.md, as Markdown.
std::string trainer_flag_page();

}  // namespace fullshard::cli
