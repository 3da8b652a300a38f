// SPDX-License-Identifier: Apache-2.0
// tune.json: every rung as it becomes known, so that an interrupted tune continues where it was.
//
//   {"question": "train --model …", "status": "running", "winner": null, "rungs": [{"name":
//    "ZeRO-2, batch 8", "config": {…}, "fits": true, "planned_bytes": 1234, "peak_bytes": 1240,
//    "tokens_per_s": 5678.9, "micro_batch": 8, "measured": true, "why": ""}]}
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/tuning/climb.h"

namespace fullshard::tuning {

// `--json`: all of them as objects like those of tune.json, the winner last.
std::string rungs_json(const Climbed& climbed);

// The file is replaced as a whole after each change. One thread.
class TuneRecord {
 public:
  // Reads an existing file. `question` is what is tuned; a file about another is an Error (kind
  // usage), unless `begins_anew`.
  TuneRecord(std::string path, std::string question, bool begins_anew);

  // What was measured for that file before, if anything.
  std::optional<MeasuredRung> measured(const std::string& config) const;
  void add(const RungResult& result);
  // "running", "done", "interrupted", "nothing fits"; the winner's title, if there is one.
  void set_status(const std::string& status, const std::string& winner = "");
  const std::string& path() const { return path_; }

 private:
  void load(const std::string& text);
  void write() const;

  std::string path_, question_, status_ = "running", winner_;
  std::vector<std::string> order_;                // titles, as they became known
  std::map<std::string, std::string> rungs_;      // by title, as JSON
  std::map<std::string, MeasuredRung> measured_;  // by configuration
};

// Asks `inner` for what the record does not know, and records the answers.
class RecordedTrials : public Trials {
 public:
  // Both outlive this.
  RecordedTrials(Trials& inner, TuneRecord& record) : inner_(inner), record_(record) {}

  std::string config(const Rung& rung) override { return inner_.config(rung); }
  PlannedRung plan(const Rung& rung) override { return inner_.plan(rung); }
  MeasuredRung measure(const Rung& rung, const std::string& config) override;
  bool has_time(const Rung& rung, std::optional<double> tokens_per_s) override;
  void note(const RungResult& result) override;

 private:
  Trials& inner_;
  TuneRecord& record_;
};

}  // namespace fullshard::tuning
