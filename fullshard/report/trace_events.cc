// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/trace_events.h"

#include <map>
#include <nlohmann/json.hpp>

namespace fullshard::report {
namespace {

constexpr double kMicroseconds = 1e6;  // the unit of trace events

std::map<std::string, int> numbered_tracks(const std::vector<TraceSpan>& spans,
                                           const std::string& first_track) {
  std::map<std::string, int> numbers = {{first_track, 0}};
  for (const TraceSpan& span : spans) {
    numbers.try_emplace(span.track, static_cast<int>(numbers.size()));
  }
  return numbers;
}

}  // namespace

std::string trace_events(const std::vector<TraceSpan>& spans, const std::string& first_track) {
  using nlohmann::ordered_json;
  ordered_json events = ordered_json::array();
  const auto tracks = numbered_tracks(spans, first_track);
  for (const auto& [name, number] : tracks) {
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", 0},
                      {"tid", number},
                      {"args", {{"name", name}}}});
  }
  for (const TraceSpan& span : spans) {
    ordered_json event = {{"name", span.name},
                          {"ph", "X"},
                          {"pid", 0},
                          {"tid", tracks.at(span.track)},
                          {"ts", span.begin * kMicroseconds},
                          {"dur", (span.end - span.begin) * kMicroseconds}};
    if (!span.moment.empty()) event["args"] = {{"moment", span.moment}};
    events.push_back(std::move(event));
  }
  return ordered_json{{"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump(
      -1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace fullshard::report
