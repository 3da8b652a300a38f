// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/run_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace fullshard::train {
namespace {

constexpr size_t kMostSteps = 64;
constexpr const char* kPhases = "phases";

// Of one kind of track: where each of them is free again.
using FreeFrom = std::vector<double>;

std::string track_for(FreeFrom& tracks, const std::string& name, double begin, double end) {
  const auto found =
      std::find_if(tracks.begin(), tracks.end(), [&](double free) { return free <= begin; });
  const auto index = static_cast<size_t>(found - tracks.begin());
  if (found == tracks.end()) {
    tracks.push_back(end);
  } else {
    *found = end;
  }
  return index == 0 ? name : fmt::format("{} {}", name, index + 1);
}

report::TraceSpan call_span(const Record& record) {
  const bool on_device = record.is_on_device();
  return {.name = fmt::format("{} of {}", name_of(record.operation), record.unit),
          .moment = fmt::format("{}, {} bytes", record.group, record.bytes),
          .begin = on_device ? record.began : record.issued,
          .end = on_device ? record.ended : record.finished};
}

}  // namespace

void RunTrace::add(int64_t step, const std::vector<PhaseSpan>& phases) {
  steps_.push_back({step, phases});
  if (steps_.size() > kMostSteps) steps_.pop_front();
}

std::vector<report::TraceSpan> RunTrace::spans(const Recorder& recorder) const {
  std::vector<report::TraceSpan> spans;
  for (const OfStep& of_step : steps_) {
    for (const PhaseSpan& phase : of_step.phases) {
      spans.push_back(
          {kPhases, phase.name, fmt::format("step {}", of_step.step), phase.begin, phase.end});
    }
  }
  if (spans.empty()) return spans;
  const double start = spans.front().begin;
  std::vector<report::TraceSpan> calls;
  std::map<std::string, FreeFrom> tracks;
  for (const Record& record : recorder.records()) {
    auto span = call_span(record);
    if (span.begin < start || span.end < span.begin) continue;
    span.track = name_of(record.operation);
    calls.push_back(std::move(span));
  }
  std::ranges::stable_sort(calls, {}, &report::TraceSpan::begin);
  for (auto& span : calls) {
    span.track = track_for(tracks[span.track], span.track, span.begin, span.end);
    spans.push_back(std::move(span));
  }
  for (auto& span : spans) {
    span.begin -= start;
    span.end -= start;
  }
  return spans;
}

}  // namespace fullshard::train
