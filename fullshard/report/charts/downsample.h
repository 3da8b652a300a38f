// SPDX-License-Identifier: Apache-2.0
// A curve of any length as one of few points that looks the same.
#pragma once

#include <cstddef>
#include <vector>

namespace fullshard::report {

struct ChartPoint {
  double x = 0;
  double y = 0;  // not finite: a gap

  bool operator==(const ChartPoint&) const = default;
};

// At most `limit` (5 or more) of the points, in their order: of each stretch the least, the
// greatest and one that is not finite, so that no spike and no gap is lost; also the first and the
// last.
std::vector<ChartPoint> downsample(const std::vector<ChartPoint>& points, size_t limit);

}  // namespace fullshard::report
