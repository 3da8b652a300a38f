// SPDX-License-Identifier: Apache-2.0
// Passes the output of a child process on: to the terminal, each line behind a prefix, and into its
// log. Keeps its last lines for the message about its failure, without empty ones and the frames of
// stack traces, which would push out the line that says what happened.
#pragma once

#include <array>
#include <deque>
#include <string>
#include <string_view>

#include "fullshard/launch/line_prefix.h"

namespace fullshard::launch {

class LateLines;

struct ChildOutputOptions {
  bool shown = true;
  std::string prefix = {};          // empty: bytes are passed on as they come
  std::string log = {};             // a file to which lines are added; empty: none
  std::string log_name = {};        // its name from accept_log() on; empty: `log`
  LateLines* late_lines = nullptr;  // receives every line; outlives the output
};

class ChildOutput {
 public:
  // Throws Error when the log cannot be opened.
  explicit ChildOutput(const ChildOutputOptions& options);
  ~ChildOutput();
  ChildOutput(const ChildOutput&) = delete;
  ChildOutput& operator=(const ChildOutput&) = delete;

  // `stream` 0 is standard output, 1 standard error.
  void take(size_t stream, std::string_view piece);
  // Passes on lines that have no end.
  void finish();
  // Renames the log to its final name; the file that had this name becomes NAME.old.
  void accept_log();

  const std::deque<std::string>& last_lines() const { return last_lines_; }
  bool is_shown() const { return options_.shown; }
  // How many pieces of output were shown.
  size_t num_shown() const { return num_shown_; }
  // The errno of a failed write to standard output; 0: none failed, or its reader has gone.
  int lost_output() const { return lost_output_; }
  const std::string& log() const { return options_.log; }

 private:
  void show(size_t stream, std::string_view text);
  void keep(const std::string& lines);

  ChildOutputOptions options_;
  int log_ = -1;
  int lost_output_ = 0;
  size_t num_shown_ = 0;
  std::array<LinePrefix, 2> shown_lines_;
  std::array<LinePrefix, 2> kept_lines_;
  std::deque<std::string> last_lines_;
};

}  // namespace fullshard::launch
