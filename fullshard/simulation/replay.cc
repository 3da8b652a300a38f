// SPDX-License-Identifier: Apache-2.0
#include "fullshard/simulation/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <utility>

namespace fullshard::simulation {
namespace {

constexpr int64_t kModelStream = 0;

// A collective, and what it takes from concurrent kernels.
struct Running {
  double begin, end;
  double share;
};

class Clock {
 public:
  Clock(const RecordedSchedule& schedule, const TaskCosts& costs)
      : schedule_(schedule), costs_(costs) {}

  Replay run() {
    for (size_t i = 0; i < schedule_.tasks.size(); ++i) {
      if (i == schedule_.last_step) begin_last_step();
      advance(schedule_.tasks[i]);
    }
    result_.step_seconds = streams_[kModelStream] - start_;
    return std::move(result_);
  }

 private:
  void begin_last_step() {
    start_ = streams_[kModelStream];
    result_ = {};
  }

  void advance(const ScheduledTask& task) {
    switch (task.kind) {
      case TaskKind::kernel:
        return run_kernel(task);
      case TaskKind::collective:
        return issue(task);
      case TaskKind::wait:
        return hold(task.stream, calls_[task.number], result_.exposed_communication);
      case TaskKind::mark:
        events_[task.number] = streams_[task.stream];
        return;
      case TaskKind::hold:
        return hold(task.stream, events_[task.number], result_.exposed_copies);
      case TaskKind::hold_host:
        host_ = std::max(host_, events_[task.number]);
        return;
      case TaskKind::disk:
        return move_on_disk(task);
      case TaskKind::wait_disk:
        host_ = std::max(host_, transfers_[task.number]);
        return;
    }
  }

  // Reads and writes share the disk.
  void move_on_disk(const ScheduledTask& task) {
    const double begin = std::max(disk_, host_);
    disk_ = begin + costs_.disk(task.op.bytes);
    transfers_[task.number] = disk_;
    note("disk", task.op.name, task.moment, begin, disk_);
  }

  void hold(int64_t stream, double until, double& exposed) {
    double& now = streams_[stream];
    if (stream == kModelStream) exposed += std::max(0.0, until - now);
    now = std::max(now, until);
  }

  // A bus carries one copy at a time in each direction.
  void run_kernel(const ScheduledTask& task) {
    using Kind = tensor::OperatorKind;
    const double cost = costs_.kernel(task.op);
    hold(task.stream, host_, result_.exposed_copies);  // nothing begins before it is issued
    double& now = streams_[task.stream];
    double begin = now;
    if (task.op.kind == Kind::to_device || task.op.kind == Kind::to_host) {
      double& bus = task.op.kind == Kind::to_device ? bus_in_ : bus_out_;
      begin = std::max(begin, bus);
      now = bus = begin + cost;
    } else {
      now = end_beside_collectives(begin, cost);
    }
    if (task.stream == kModelStream) result_.kernels += now - begin;
    note(track_of(task), task.op.name, task.moment, begin, now);
  }

  // It runs after what its caller has issued, on the stream of its group. Groups that meet on one
  // level of the links take turns there.
  void issue(const ScheduledTask& task) {
    const double cost = costs_.collective(task.call);
    double& group = groups_[task.call.group];
    double& link = links_[static_cast<size_t>(level_of(task.call.shape))];
    const double begin = std::max({group, link, host_, streams_[task.stream]});
    const double end = begin + cost;
    group = end;
    if (cost > 0) link = end;
    calls_[task.number] = end;
    const double share = costs_.share ? costs_.share(task.call) : 0;
    if (cost > 0 && share > 0) running_.push_back({begin, end, share});
    result_.communication += cost;
    if (cost == 0) return;
    note(task.call.group, fmt::format("{} of {}", name_of(task.call.operation), task.call.label),
         task.moment, begin, end);
  }

  // Collectives that are issued later begin after this kernel.
  double end_beside_collectives(double begin, double cost) {
    const double oldest = oldest_stream();
    std::erase_if(running_, [&](const Running& run) { return run.end <= oldest; });
    double now = begin, left = cost;
    for (const double until : changes_after(begin)) {
      const double speed = 1 - share_at(now);
      if (left <= (until - now) * speed) return now + (left > 0 ? left / speed : 0);
      left -= (until - now) * speed;
      now = until;
    }
    return now + left;
  }

  // The times at which a collective begins or ends.
  std::vector<double> changes_after(double time) const {
    std::vector<double> changes;
    for (const auto& run : running_) {
      if (run.begin > time) changes.push_back(run.begin);
      if (run.end > time) changes.push_back(run.end);
    }
    std::sort(changes.begin(), changes.end());
    return changes;
  }

  // Of two concurrent ones, the one that takes more counts.
  double share_at(double time) const {
    double share = 0;
    for (const auto& run : running_) {
      if (run.begin <= time && time < run.end) share = std::max(share, run.share);
    }
    return share;
  }

  // No compute stream is at an earlier time.
  double oldest_stream() const {
    double oldest = streams_.empty() ? 0 : streams_.begin()->second;
    for (const auto& [stream, time] : streams_) oldest = std::min(oldest, time);
    return oldest;
  }

  static std::string track_of(const ScheduledTask& task) {
    using Kind = tensor::OperatorKind;
    if (task.op.kind == Kind::to_device) return "copies in";
    if (task.op.kind == Kind::to_host) return "copies out";
    return task.stream == kModelStream ? "compute" : fmt::format("stream {}", task.stream);
  }

  void note(std::string track, std::string name, const std::string& moment, double begin,
            double end) {
    result_.spans.push_back(
        {std::move(track), std::move(name), moment, begin - start_, end - start_});
  }

  const RecordedSchedule& schedule_;
  const TaskCosts& costs_;
  Replay result_{};
  double start_ = 0;
  std::map<int64_t, double> streams_;
  std::map<std::string, double> groups_;
  std::array<double, 3> links_{};
  double bus_in_ = 0, bus_out_ = 0, disk_ = 0, host_ = 0;
  std::unordered_map<int64_t, double> events_, calls_, transfers_;
  std::vector<Running> running_;
};

}  // namespace

Replay replay(const RecordedSchedule& schedule, const TaskCosts& costs) {
  return Clock(schedule, costs).run();
}

}  // namespace fullshard::simulation
