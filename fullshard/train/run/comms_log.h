// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's comms_logger: how often each collective was called with how many bytes, and how long
// it took, of this rank, as its recorder saw it.
//
// A call's time is that between its issue and its end: on a device where it lay on its stream, on
// the host up to when its result was taken. Computation that it ran behind is part of that, so that
// bandwidths are those that were at least reached.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/comm/recorder.h"
#include "fullshard/train/run_settings.h"

namespace fullshard::train {

// One thread.
class CommsLog {
 public:
  explicit CommsLog(const CommsLogOptions& options);

  // Counts the calls that have ended since the last time; waits for a device. Gives their lines
  // where each is to have one.
  std::vector<std::string> take(Recorder& recorder);
  // The table; empty when nothing was counted.
  std::string summary() const;

 private:
  struct Sum {
    int64_t calls = 0;
    int64_t bytes = 0, moved = 0;
    double seconds = 0;
  };
  std::string name_of_call(const Record& record) const;
  bool is_logged(const Record& record) const;

  CommsLogOptions options_;
  std::set<std::string> operations_;
  double counted_until_ = -1;  // when the last call that was counted had been issued
  bool has_lost_ = false;      // the recorder dropped calls before they were counted
  std::map<std::pair<std::string, int64_t>, Sum> sums_;  // by name and bytes
};

}  // namespace fullshard::train
