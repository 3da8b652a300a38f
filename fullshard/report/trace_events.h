// SPDX-License-Identifier: Apache-2.0
// A timeline that chrome://tracing and Perfetto open: JSON trace events, with tracks next to each
// other.
#pragma once

#include <string>
#include <vector>

namespace fullshard::report {

// Spans of one track are drawn inside the spans that contain them; otherwise they do not overlap.
struct TraceSpan {
  std::string track{};  // "compute", "shards", "copies in"
  std::string name{};
  std::string moment{};       // of the model: "forward of unit 'layers.3'"; may be empty
  double begin = 0, end = 0;  // seconds
  bool operator==(const TraceSpan&) const = default;
};

// `first_track` is drawn first, the others in the order of their first spans.
std::string trace_events(const std::vector<TraceSpan>& spans, const std::string& first_track);

}  // namespace fullshard::report
