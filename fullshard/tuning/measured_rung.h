// SPDX-License-Identifier: Apache-2.0
// A few steps of a rung in a process of its own, so that its memory, or its end, cannot touch the
// next one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/launch/signals.h"
#include "fullshard/tuning/rung.h"

namespace fullshard::tuning {

// A new folder in `parent` that no other user can read; the destructor removes it.
class PrivateFolder {
 public:
  explicit PrivateFolder(const std::string& parent);
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Removes those of a process that was killed. For the process that owns `parent`.
void remove_left_folders(const std::string& parent);

struct TrialCommand {
  std::vector<std::string> words{};       // `fullshard train …`, or what stands in for it
  std::string output{};                   // its --output: metrics.jsonl is read there
  bool on_gpus = false;                   // whose peak counts: the device's or the process's
  std::optional<int64_t> device_bytes{};  // the limit for a peak on a GPU
  std::optional<double> patience_s{};     // after which it is ended, and did not fit the budget
  bool times_phases = false;              // of each step
  bool shows_log = false;                 // its standard error is passed on
};

struct TrialEnd {
  MeasuredRung measured{};
  int status = 0;          // its exit status, 128 + n for signal n
  int interrupted_by = 0;  // a signal that this process got meanwhile; the run was then ended
};

// The process is told that it is only measured (base::LauncherEnvironment::measured). One that is
// killed, or runs out of memory, is a rung that does not fit. `signals` were taken over before this
// process had other threads.
TrialEnd run_trial(const TrialCommand& command, const launch::Signals& signals);

}  // namespace fullshard::tuning
