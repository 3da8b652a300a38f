// SPDX-License-Identifier: Apache-2.0
// The arguments of one of our commands, from a command line of the Trainer: what each flag sets,
// which of two conflicting flags counts, and which flags the command does not use.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "fullshard/cli/flags/run_arguments.h"
#include "fullshard/cli/flags/trainer_line.h"
#include "fullshard/cli/flags/trainer_words.h"

namespace fullshard::cli {

// Whether the command trains nothing: eval, generate.
bool only_computes(RunKind kind);

class OwnWords {
 public:
  // Until finish(), flags have the names of `train`, whatever the command is. A line of `train`
  // that only evaluates becomes one of `eval`.
  OwnWords(const std::vector<std::string>& words, RunKind kind);
  OwnWords(const OwnWords&) = delete;  // put_ points into line_
  OwnWords& operator=(const OwnWords&) = delete;

  RunKind kind() const { return kind_; }
  bool is_switched() const { return is_switched_; }  // from train to eval
  const TrainerLine& line() const { return line_; }

  // `given` stands for this flag and value; empty: a flag without one. Equal values are passed
  // once. Of two different values the last one counts, as in argparse, and a note says so; but
  // lists, and flags that stand for one value among others, contradict each other, which is an
  // Error of kind usage. Returns whether `given` now sets the value.
  bool put(const GivenFlag& given, const std::string& own, const std::string& value);
  void put_list(const GivenFlag& given, const std::string& own);
  bool is_said(const std::string& own) const;

  // The command's arguments, with notes and one warning about flags that it does not use.
  void finish(TrainerWords& result);

 private:
  struct Put {
    const GivenFlag* given;
    std::string own, value;
    std::vector<std::string> more;  // of a list
  };

  bool only_evaluates() const;
  std::string name_in_command(const std::string& train) const;
  std::string shown(const std::string& own, const std::string& value) const;
  void note_both(const std::string& one, const std::string& other, const std::string& last);
  void drop(const std::string& typed);
  void leave_out_training();

  RunKind kind_;
  bool is_switched_ = false;
  std::set<std::string, std::less<>> names_;  // of a command that only computes
  TrainerLine line_;
  std::vector<Put> put_;
  std::vector<std::string> dropped_;
  std::vector<std::string> notes_;
};

}  // namespace fullshard::cli
