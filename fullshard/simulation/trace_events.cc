// SPDX-License-Identifier: Apache-2.0
#include "fullshard/simulation/trace_events.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

namespace fullshard::simulation {
namespace {

constexpr double kMicroseconds = 1e6;  // the unit of trace events

// In the order in which they first do something, the model's own stream first.
std::map<std::string, int> numbered_tracks(const std::vector<Span>& spans) {
  std::map<std::string, int> numbers = {{"compute", 0}};
  for (const auto& span : spans) {
    numbers.try_emplace(span.track, static_cast<int>(numbers.size()));
  }
  return numbers;
}

}  // namespace

std::string trace_events(const Replay& replay) {
  using nlohmann::ordered_json;
  ordered_json events = ordered_json::array();
  const auto tracks = numbered_tracks(replay.spans);
  for (const auto& [name, number] : tracks) {
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", 0},
                      {"tid", number},
                      {"args", {{"name", name}}}});
  }
  for (const auto& span : replay.spans) {
    events.push_back({{"name", span.name},
                      {"ph", "X"},
                      {"pid", 0},
                      {"tid", tracks.at(span.track)},
                      {"ts", span.begin * kMicroseconds},
                      {"dur", (span.end - span.begin) * kMicroseconds},
                      {"args", {{"moment", span.moment}}}});
  }
  return ordered_json{{"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump();
}

}  // namespace fullshard::simulation
