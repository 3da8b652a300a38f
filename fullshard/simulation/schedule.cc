// SPDX-License-Identifier: Apache-2.0
#include "fullshard/simulation/schedule.h"

#include <fmt/format.h>

#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/engine/passes/present_pass.h"
#include "fullshard/engine/plan/unit_name.h"

namespace fullshard::simulation {
namespace {

constexpr int64_t kNotOnDevice = 0;

std::string present_moment() {
  const auto& pass = engine::present_pass();
  using Kind = engine::PresentPass::Kind;
  if (pass.kind == Kind::none) return "outside of units";
  return fmt::format("{} of {}", pass.kind == Kind::forward ? "forward" : "backward",
                     engine::describe_unit(pass.unit));
}

}  // namespace

void ScheduleRecorder::add(ScheduledTask task) {
  task.moment = present_moment();
  const std::lock_guard lock(mutex_);
  schedule_.tasks.push_back(std::move(task));
}

void ScheduleRecorder::ran(const tensor::OperatorCall& call, int64_t stream) {
  add({.kind = TaskKind::kernel, .stream = stream, .op = call});
}

void ScheduleRecorder::marked(int64_t event, int64_t stream) {
  add({.kind = TaskKind::mark, .stream = stream, .number = event});
}

void ScheduleRecorder::held(int64_t event, int64_t stream) {
  add({.kind = TaskKind::hold, .stream = stream, .number = event});
}

void ScheduleRecorder::held_host(int64_t event) {
  add({.kind = TaskKind::hold_host, .number = event});
}

void ScheduleRecorder::moved_on_disk(int64_t number, int64_t bytes, bool is_write) {
  add({.kind = TaskKind::disk,
       .number = number,
       .op = {.name = is_write ? "write" : "read", .bytes = bytes}});
}

void ScheduleRecorder::waited_for_disk(int64_t number) {
  add({.kind = TaskKind::wait_disk, .number = number});
}

// Messages between hosts' memories (votes) are small and hold up no GPU.
int64_t ScheduleRecorder::issued(const comm::WatchedCall& watched) {
  if (!watched.is_on_device) return kNotOnDevice;
  int64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++num_calls_;
  }
  const auto& call = watched.call;
  add({.kind = TaskKind::collective,
       .stream = tensor::present_stream(),
       .number = number,
       .call = {call.operation, std::string(call.group), std::string(call.unit), call.bytes,
                watched.group, watched.slices}});
  return number;
}

void ScheduleRecorder::waited(int64_t number) {
  if (number == kNotOnDevice) return;
  add({.kind = TaskKind::wait, .stream = tensor::present_stream(), .number = number});
}

void ScheduleRecorder::end_step() {
  const std::lock_guard lock(mutex_);
  ends_.push_back(schedule_.tasks.size());
}

RecordedSchedule ScheduleRecorder::take() {
  const std::lock_guard lock(mutex_);
  check(ends_.size() >= 3, "simulate: {} steps were recorded, expected at least 3", ends_.size());
  const size_t before_last_two = ends_[ends_.size() - 3];
  auto& tasks = schedule_.tasks;
  tasks.resize(ends_.back());
  tasks.erase(tasks.begin(), tasks.begin() + static_cast<std::ptrdiff_t>(before_last_two));
  schedule_.last_step = ends_[ends_.size() - 2] - before_last_two;
  ends_.clear();
  return std::exchange(schedule_, {});
}

}  // namespace fullshard::simulation
