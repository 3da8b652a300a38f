// SPDX-License-Identifier: Apache-2.0
// The words of one of our commands, out of a line of the Trainer's: which flag says what, what
// comes last where two say the same, and what the command has no use for.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "fullshard/cli/flags/run_arguments.h"
#include "fullshard/cli/flags/trainer_line.h"
#include "fullshard/cli/flags/trainer_words.h"

namespace fullshard::cli {

// Nothing is trained by it: eval, generate.
bool only_computes(RunKind kind);

class OwnWords {
 public:
  // Flags have the names of `train` here, whatever the command is, until finish(). The line of a
  // `train` that only evaluates becomes one of `eval`.
  OwnWords(const std::vector<std::string>& words, RunKind kind);
  OwnWords(const OwnWords&) = delete;  // what is put points into the line
  OwnWords& operator=(const OwnWords&) = delete;

  RunKind kind() const { return kind_; }
  bool is_switched() const { return is_switched_; }  // from train to eval
  const TrainerLine& line() const { return line_; }

  // `given` stands for this flag and value; empty: a flag without one. Two that say the same thing
  // are said once. Of two that say different things the one that comes last counts, as in argparse,
  // and a note says so; but lists, and words that stand for one value among others, contradict each
  // other, which is an Error of kind usage. Whether it is `given` that says it now.
  bool put(const GivenFlag& given, const std::string& own, const std::string& value);
  void put_list(const GivenFlag& given, const std::string& own);
  bool is_said(const std::string& own) const;

  // The words of the command, with notes and the one warning about flags that it has no use for.
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
