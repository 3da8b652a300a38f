// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/charts/downsample.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "fullshard/base/error.h"

namespace fullshard::report {
namespace {

// Adds the positions worth keeping of points[from, to).
void keep_extremes(const std::vector<ChartPoint>& points, size_t from, size_t to,
                   std::vector<size_t>& kept) {
  std::optional<size_t> least, greatest, gap;
  for (size_t i = from; i < to; ++i) {
    if (!std::isfinite(points[i].y)) {
      if (!gap) gap = i;
      continue;
    }
    if (!least || points[i].y < points[*least].y) least = i;
    if (!greatest || points[i].y > points[*greatest].y) greatest = i;
  }
  for (const auto& position : {least, greatest, gap}) {
    if (position) kept.push_back(*position);
  }
}

}  // namespace

std::vector<ChartPoint> downsample(const std::vector<ChartPoint>& points, size_t limit) {
  check(limit >= 5, "downsample: the limit is {}, expected 5 or more", limit);
  if (points.size() <= limit) return points;
  const size_t stretches = (limit - 2) / 3;
  std::vector<size_t> kept = {0, points.size() - 1};
  for (size_t i = 0; i < stretches; ++i) {
    keep_extremes(points, points.size() * i / stretches, points.size() * (i + 1) / stretches, kept);
  }
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  std::vector<ChartPoint> result;
  for (const size_t position : kept) result.push_back(points[position]);
  return result;
}

}  // namespace fullshard::report
