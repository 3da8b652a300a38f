// SPDX-License-Identifier: Apache-2.0
// run.json: a description of a run, written when it starts and again when it ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fullshard {

enum class RunStatus { running, finished, failed, interrupted };
std::string_view name_of(RunStatus status);  // running, done, failed, interrupted

struct MemoryShare {
  std::string purpose{};  // as name_of(Purpose): parameters, gradients, master, …
  std::string tier{};     // as name_of(Tier): device, host; or disk
  int64_t bytes = 0;
};

// What a rank will hold on one tier, as planned before the start.
struct PlannedTier {
  std::string tier{};
  int64_t rest_bytes = 0;  // between steps
  int64_t peak_bytes = 0;
  std::string peak_at{};                                      // "backward of unit 'layers.3'"
  std::vector<std::pair<std::string, int64_t>> by_purpose{};  // at the peak
};

// Bytes by purpose at the peak.
struct MemoryPlan {
  std::vector<PlannedTier> planned{};    // of the rank with the most; present from the start
  std::vector<MemoryShare> unsharded{};  // one rank that holds everything
  std::vector<std::vector<MemoryShare>> ranks{};  // one entry stands for all if they are equal
};

// What all ranks together read and wrote if states or parameters are kept on a disk, and how long
// the rank that waited longest waited for it.
struct DiskTraffic {
  std::vector<std::string> folders{};
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  int64_t bytes_written_per_day = 0;  // at the speed of this run's steps
  double read_wait_s = 0;
  double write_wait_s = 0;
};

struct RunMesh {
  int world = 1;
  int replicas = 1;
  int shards = 1;
  std::vector<std::string> hosts{};
};

struct RunModel {
  std::string name{};  // preset or folder
  std::string architecture{};
  int64_t parameters = 0;
};

struct RunRecord {
  RunStatus status = RunStatus::running;
  std::string problem{};        // why it failed, what interrupted it
  std::string checkpoint{};     // the last one that was written
  std::string stopped_early{};  // why it ended before its last step; empty: it did not
  std::vector<std::pair<std::string, std::string>> versions{};  // "fullshard", "libtorch", …
  std::vector<std::string> command{};
  std::string device{};
  RunMesh mesh{};
  RunModel model{};
  // A JSON object of key → {"value", "origin", "effect"}, as Explanation::json() gives it.
  std::string configuration = "{}";
  MemoryPlan memory{};
  std::optional<DiskTraffic> disk{};  // absent: nothing is kept on one, or the run has not ended
  std::vector<std::string> warnings{};
  int64_t num_steps = 0;  // planned; 0: not known
  // Steps done when it started: 0, or where it was resumed. Absent: an older file.
  std::optional<int64_t> first_step{};
  int64_t tokens = 0;              // of all steps of metrics.jsonl, all ranks; 0 while running
  int64_t started = 0;             // seconds since 1970, UTC
  std::optional<int64_t> ended{};  // absent while running
};

std::string to_json(const RunRecord& record);
// Keys that are absent keep their defaults; a wrong type is an Error of kind input that begins with
// `where` and the key.
RunRecord parse_run_record(std::string_view text, std::string_view where);

// Readers see the old file or the new one, never a part of it.
void write_run_record(const std::string& path, const RunRecord& record);
RunRecord read_run_record(const std::string& path);

// Records how the run in a folder ended, on its behalf, with its last checkpoint: changes a record
// that still says "running", and nothing else in it. Returns whether it did.
bool close_run_record(const std::string& folder, RunStatus status, const std::string& problem,
                      int64_t ended);

}  // namespace fullshard
