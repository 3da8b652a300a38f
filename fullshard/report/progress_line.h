// SPDX-License-Identifier: Apache-2.0
// The progress of a run: one line that is redrawn on a terminal, or plain lines every few steps
// where the output is a file or a pipe.
//
//   step 120/1000  loss 2.3456  lr 0.0003  norm 1.23  45.6 K tokens/s  MFU 41.2%  1.23 GiB  12:34
//   left
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "fullshard/report/records/step_record.h"

namespace fullshard::report {

enum class ProgressMode { terminal, lines, silent };

struct ProgressOptions {
  ProgressMode mode = ProgressMode::lines;
  int64_t num_steps = 0;         // in total; 0: not known, and no time left is shown
  int64_t first_step = 0;        // done before this run began (resumed)
  int64_t steps_per_print = 10;  // for plain lines, and for the time by phase if it is recorded
  // Columns of the terminal, asked again for each drawing: windows change.
  std::function<int()> width = [] { return 80; };
  // Seconds on a clock that never goes back.
  std::function<double()> clock{};
  std::function<void(std::string_view)> write{};
};

// The options for a file descriptor: whether it is a terminal, its width, a steady clock, and a
// function that writes to it.
ProgressOptions progress_options_for(int descriptor);

// For one thread.
class ProgressLine {
 public:
  explicit ProgressLine(ProgressOptions options);

  // Once per step, in order.
  void step(const StepRecord& record);
  // Prints a line of text above the progress line; `text` has no line break. Shown in every mode
  // but silent.
  void log(std::string_view text);
  // Removes the progress line from the screen.
  void clear();

 private:
  void measure(int64_t step);
  std::optional<double> seconds_left(int64_t step) const;
  bool is_last(int64_t step) const;
  void draw();
  void print_line(const StepRecord& record);

  ProgressOptions options_;
  StepRecord record_{};
  int64_t last_step_;
  double last_time_;
  double drawn_time_ = 0;
  bool has_record_ = false;
  bool is_drawn_ = false;
  // Seconds per step, newer steps counting more; weight_ is the sum of the weights so far, so that
  // the first steps are not taken for an average.
  double smoothed_ = 0;
  double weight_ = 0;
};

// The line for a width; the least important parts are left out first.
std::string progress_text(const StepRecord& record, int64_t num_steps,
                          std::optional<double> seconds_left, int width);
// "step 10 took 250 ms: data 1 ms, forward 80 ms, …"; empty if no phases were recorded.
std::string phases_text(const StepRecord& record);

}  // namespace fullshard::report
