// SPDX-License-Identifier: Apache-2.0
// A timeline as chrome://tracing and Perfetto open it: JSON trace events, tracks beside each other.
#pragma once

#include <string>
#include <vector>

namespace fullshard::report {

// Spans of one track that lie in each other are drawn in each other; others do not overlap.
struct TraceSpan {
  std::string track{};  // "compute", "shards", "copies in"
  std::string name{};
  std::string moment{};       // of the model: "forward of unit 'layers.3'"; may be empty
  double begin = 0, end = 0;  // seconds
  bool operator==(const TraceSpan&) const = default;
};

// `first_track` is drawn first, the others in the order in which they first do something.
std::string trace_events(const std::vector<TraceSpan>& spans, const std::string& first_track);

}  // namespace fullshard::report
