// SPDX-License-Identifier: Apache-2.0
#include "tests/stand_in/device/device_streams.h"

#include <chrono>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::stand_in {
namespace {

thread_local int64_t current_stream_id = Streams::kDefault;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Streams& Streams::instance() {
  static auto* const streams = new Streams;
  return *streams;
}

int64_t Streams::current() { return current_stream_id; }
int64_t Streams::exchange_current(int64_t stream) {
  return std::exchange(current_stream_id, stream);
}

int64_t Streams::make() {
  const std::lock_guard lock(mutex_);
  return ++last_;
}

bool Streams::is_capturing() const {
  const std::lock_guard lock(mutex_);
  return capture_ != nullptr && capture_->stream == current_stream_id;
}

void Streams::refuse_in_capture(const char* what) const {
  check(!is_capturing(), "stand-in device: {} while a stream is captured", what);
}

void Streams::submit(int64_t stream, Work work) {
  const std::lock_guard lock(mutex_);
  if (capture_ != nullptr && capture_->stream == stream) {
    capture_->work.push_back(std::move(work));
    return;
  }
  auto& own = streams_[stream];
  own.work.push_back(std::move(work));
  ++own.num_given;
  if (stream == kDefault) run_to(stream, own.num_given);
}

void Streams::run_to(int64_t stream, int64_t position) {
  auto& own = streams_[stream];
  if (own.num_done >= position) return;
  // Work of the default stream may give it more, which is done after it.
  if (own.is_working && stream == kDefault) return;
  check(!own.is_working, "stand-in device: streams wait for each other");
  while (own.num_done < position) {
    own.is_working = true;
    const auto next = std::move(own.work.front());
    own.work.pop_front();
    try {
      next();
    } catch (...) {
      own.is_working = false;
      ++own.num_done;
      throw;
    }
    own.is_working = false;
    ++own.num_done;
    if (stream == kDefault) position = own.num_given;
  }
}

void Streams::finish(int64_t stream, const char* what) {
  const std::lock_guard lock(mutex_);
  refuse_in_capture(what);
  run_to(stream, streams_[stream].num_given);
}

void Streams::finish_all() {
  const std::lock_guard lock(mutex_);
  refuse_in_capture("waiting for the device");
  for (auto& [stream, own] : streams_) run_to(stream, own.num_given);
}

Streams::Event Streams::record(int64_t stream) {
  const std::lock_guard lock(mutex_);
  if (capture_ != nullptr && capture_->stream == stream) {
    return {.stream = stream, .graph = capture_->graph};
  }
  return {.stream = stream, .position = streams_[stream].num_given, .seconds = seconds_now()};
}

void Streams::hold(int64_t stream, const Event& event) {
  const std::lock_guard lock(mutex_);
  const int64_t graph = capture_ != nullptr && capture_->stream == stream ? capture_->graph : 0;
  check(event.graph == graph,
        "stand-in device: a stream waits for what is not of the graph that is captured");
  if (graph != 0 || event.stream == stream) return;
  if (stream == kDefault) return run_to(event.stream, event.position);
  submit(stream, [this, event] { run_to(event.stream, event.position); });
}

bool Streams::query(const Event& event) {
  const std::lock_guard lock(mutex_);
  refuse_in_capture("asking for an event");
  check(event.graph == 0, "stand-in device: an event of a captured stream is asked for");
  auto& own = streams_[event.stream];
  if (own.num_done >= event.position) return true;
  run_to(event.stream, own.num_done + 1);
  return false;
}

void Streams::wait(const Event& event) {
  const std::lock_guard lock(mutex_);
  refuse_in_capture("waiting for an event");
  check(event.graph == 0, "stand-in device: an event of a captured stream is waited for");
  run_to(event.stream, event.position);
}

int64_t Streams::end_of(int64_t stream) const {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream);
  return found == streams_.end() ? 0 : found->second.num_given;
}

bool Streams::has_passed(int64_t stream, int64_t position) const {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream);
  return found == streams_.end() || found->second.num_done >= position;
}

void Streams::begin_capture(int64_t stream, int64_t graph) {
  const std::lock_guard lock(mutex_);
  check(capture_ == nullptr, "stand-in device: two graphs are captured at once");
  capture_ = std::make_unique<Capture>(Capture{stream, graph, {}});
}

std::vector<Work> Streams::end_capture() {
  const std::lock_guard lock(mutex_);
  return std::exchange(capture_, nullptr)->work;
}

}  // namespace fullshard::stand_in
