// SPDX-License-Identifier: Apache-2.0
// What one rank submits to its GPU in the last two of a few steps, in the order of the host:
// kernels and copies on streams, collectives, and what waits for what. The engine itself makes it
// (planning/); all ranks make the same.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "fullshard/comm/recorder.h"
#include "fullshard/comm/world/call_watch.h"
#include "fullshard/tensor/operator_watch.h"

namespace fullshard::simulation {

struct Collective {
  Operation operation = Operation::all_gather;
  std::string group{};  // "shards", "everyone", …: each has a stream of its own
  std::string label{};  // the caller: "unit 'blocks.2'"
  int64_t bytes = 0;    // of the full buffer
  comm::GroupShape shape{};
  int slices = 1;  // of a reduction; one is an all-reduce

  bool operator==(const Collective&) const = default;
};

enum class TaskKind {
  kernel,      // or a copy over the bus: `op`, on `stream`
  collective,  // `call` is issued after what `stream` holds; `number` names it
  wait,        // `stream` continues after collective `number`
  mark,        // event `number` is where `stream` is now
  hold,        // `stream` continues after event `number`
  hold_host,   // the host continues after it
  disk,        // `op` says how many bytes move, one transfer after the other; `number` names it
  wait_disk,   // the host continues after transfer `number`
};

struct ScheduledTask {
  TaskKind kind = TaskKind::kernel;
  int64_t stream = 0;  // 0: where the model computes
  int64_t number = 0;
  tensor::OperatorCall op{};
  Collective call{};
  std::string moment{};  // "forward of unit 'blocks.2'"
};

struct RecordedSchedule {
  std::vector<ScheduledTask> tasks{};
  // The task at which the last step begins; the step before it runs the same. What a run does at
  // its end is not part of it.
  size_t last_step = 0;
};

// Thread-safe, as watches are.
class ScheduleRecorder : public tensor::OperatorWatch, public comm::CallWatch {
 public:
  void ran(const tensor::OperatorCall& call, int64_t stream) override;
  void marked(int64_t event, int64_t stream) override;
  void held(int64_t event, int64_t stream) override;
  void held_host(int64_t event) override;
  void moved_on_disk(int64_t number, int64_t bytes, bool is_write) override;
  void waited_for_disk(int64_t number) override;
  int64_t issued(const comm::WatchedCall& call) override;
  void waited(int64_t number) override;

  // Steps follow each other; the first ones are discarded.
  void end_step();
  RecordedSchedule take();

 private:
  void add(ScheduledTask task);

  std::mutex mutex_;
  RecordedSchedule schedule_{};
  std::vector<size_t> ends_;  // of steps, among the tasks
  int64_t num_calls_ = 0;
};

}  // namespace fullshard::simulation
