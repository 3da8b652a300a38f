// SPDX-License-Identifier: Apache-2.0
// A schedule on streams: every task starts when its stream is free and what it depends on is done.
// The host costs nothing, and runs ahead until it waits for an event or a disk.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fullshard/report/trace_events.h"
#include "fullshard/simulation/link_cost.h"
#include "fullshard/simulation/schedule.h"

namespace fullshard::simulation {

struct TaskCosts {
  std::function<double(const tensor::OperatorCall&)> kernel;
  std::function<double(const Collective&)> collective;
  std::function<double(int64_t bytes)> disk = {};
  // The share of compute that kernels lack while this collective runs.
  std::function<double(const Collective&)> share = {};
};

// The last step; seconds since it began. Tracks are "compute", "shards", "everyone", "copies
// in", "copies out", "disk", "stream 3".
using report::TraceSpan;

struct Replay {
  double step_seconds = 0;
  double exposed_communication = 0;  // the model waited for a collective
  double exposed_copies = 0;         // or for another stream or a disk: offload
  double communication = 0;          // seconds of all collectives
  double kernels = 0;                // on the model's own stream
  std::vector<TraceSpan> spans{};
};

Replay replay(const RecordedSchedule& schedule, const TaskCosts& costs);

}  // namespace fullshard::simulation
