// SPDX-License-Identifier: Apache-2.0
// A curve of any length reduced to a few points that look the same.
#pragma once

#include <cstddef>
#include <vector>

namespace fullshard::report {

struct ChartPoint {
  double x = 0;
  double y = 0;  // not finite: a gap

  bool operator==(const ChartPoint&) const = default;
};

// At most `limit` (5 or more) of the points, in their order: from each stretch the least, the
// greatest and one that is not finite, so that no spike and no gap is lost; also the first and the
// last.
std::vector<ChartPoint> downsample(const std::vector<ChartPoint>& points, size_t limit);

}  // namespace fullshard::report
