// SPDX-License-Identifier: Apache-2.0
// A line chart as a piece of HTML: curves in an SVG that stretches with the page, labels as text
// next to it, so that letters keep their size on any screen.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fullshard/report/charts/chart_scale.h"
#include "fullshard/report/charts/downsample.h"

namespace fullshard::report {

enum class Look { line, faint, dots };

struct ChartSeries {
  std::string name{};
  std::string colour{};  // a class of the page's style: "c1" … "c6", "rest"
  Look look = Look::line;
  std::vector<ChartPoint> points{};
  bool is_mean = false;  // of the series before it; another mean may replace it
};

struct LineChart {
  std::string title{};
  std::string note{};  // shown below the chart; may be empty
  std::vector<ChartSeries> series{};
  bool is_from_zero = false;           // the axis begins at zero and is linear
  bool is_across_logarithmic = false;  // the horizontal axis, for values that double
};

// Reduces each curve to 1000 points.
std::string line_chart_html(const LineChart& chart);

// The parts that all charts share: a picture between its axes, and the legend of the colours.
std::string chart_frame(const ChartScale& across, const ChartScale& up, std::string_view picture);
std::string legend_html(const std::vector<ChartSeries>& series);

}  // namespace fullshard::report
