// SPDX-License-Identifier: Apache-2.0
// What `fullshard train` keeps of a run, for a training loop of your own: run.json, metrics.jsonl,
// the progress line and report.html.
//
//   fullshard::RunLog log(sharded, {.output = "run", .num_steps = 1000});
//   for (int64_t step = 1; step <= 1000; ++step) {
//     …
//     log.step({.step = step, .loss = loss.item<double>(), .lr = 1e-3, .tokens = ids.numel()});
//   }
//   log.finish();
//
// examples/own_loop.cc is a whole program.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/engine/sharded_model.h"
#include "fullshard/report/records/run_record.h"
#include "fullshard/report/records/step_record.h"

namespace fullshard {

struct RunLogOptions {
  std::string output = "fullshard-run";  // the folder; it is made where it is missing
  std::string model = "model";           // its name in run.json and the report
  int64_t num_steps = 0;                 // that are planned; 0: not known
  // Steps that an earlier run did, which this one goes on from: their lines of metrics.jsonl stay,
  // later ones go. 0: a new run, and the folder must not hold one unless `overwrite` is set.
  int64_t first_step = 0;
  bool overwrite = false;
  int64_t steps_per_print = 10;  // where standard error is no terminal
  bool quiet = false;            // no progress line, no summary
  std::vector<std::string> command = {};
  // What the report shows as the configuration: names and values, as text.
  std::vector<std::pair<std::string, std::string>> settings = {};
};

// One step as a rank sees it.
struct OwnStep {
  int64_t step = 0;                   // counted from 1; rises
  double loss = 0;                    // of this rank: the mean of all ranks is recorded
  double lr = 0;                      // the same on all ranks, as are the next three
  std::optional<double> grad_norm{};  // before clipping
  double loss_scale = 1;
  bool skipped = false;               // gradients overflowed: nothing was updated
  int64_t tokens = 0;                 // that this rank took, or samples: the sum is recorded
  std::optional<double> eval_loss{};  // on all ranks or on none; the mean is recorded
};

// Every rank has one, and calls it in the same order; rank 0 alone writes, and an Error of kind
// input there says what could not be written. One thread. It does not own the model, which outlives
// it.
class RunLog {
 public:
  // Collective. Makes the folder and writes a run.json that says "running". A folder that holds
  // another run, or that a live run owns, is an Error of kind usage on all ranks.
  RunLog(const ShardedModel& model, const RunLogOptions& options);
  // A run that was left without finish() is recorded as failed.
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // Collective, once per step. Adds the line of metrics.jsonl, moves the progress line on, renews
  // the report every ten seconds, and gives what was recorded, the same on all ranks but for the
  // seconds. After finish() it is an Error on all ranks.
  StepRecord step(const OwnStep& own);

  // The seconds of a step are those between two calls of step(). begin_step() makes them begin now,
  // end_step() end now: what is done between them counts, an evaluation or a checkpoint does not.
  void begin_step();
  void end_step();

  void say(const std::string& line);   // above the progress line
  void warn(const std::string& line);  // the same, and in run.json

  // Collective, once: what every rank held goes into run.json, the report is written, a summary
  // shown.
  void finish(RunStatus status = RunStatus::finished, const std::string& problem = "");

 private:
  void check_goes_on() const;

  struct Clock;
  struct Files;  // rank 0's

  ShardedModel model_;
  RunLogOptions options_;
  std::unique_ptr<Clock> clock_;
  std::unique_ptr<Files> files_;  // null on other ranks
  bool has_ended_ = false;
};

}  // namespace fullshard
