// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/charts/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "fullshard/report/charts/html_text.h"
#include "fullshard/report/records/number_text.h"

namespace fullshard::report {
namespace {

constexpr size_t kMostPoints = 1000;
constexpr double kSide = 1000;  // of the SVG's own coordinates, in both directions
constexpr double kRoom = 0.05;  // of the height, above and below the curves

constexpr double kBeyondDrawing = 1e300;  // differences of such values would overflow

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value) {
    if (!(std::abs(value) < kBeyondDrawing)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool is_empty() const { return low > high; }
};

std::string place_text(double place) { return fmt::format("{:.1f}", place * kSide); }

struct Paths {
  std::string line;
  std::string dots;  // lines of no length, with round ends
};

Paths paths_of(const ChartSeries& series, const ChartScale& across, const ChartScale& up) {
  Paths paths;
  bool is_open = false;
  for (size_t i = 0; i < series.points.size(); ++i) {
    const ChartPoint& point = series.points[i];
    const bool is_there = std::isfinite(point.y);
    const bool has_next = i + 1 < series.points.size() && std::isfinite(series.points[i + 1].y);
    const std::string place = is_there ? fmt::format("{} {}", place_text(across.place(point.x)),
                                                     place_text(1 - up.place(point.y)))
                                       : "";
    if (is_there && (series.look == Look::dots || (!is_open && !has_next))) {
      paths.dots += fmt::format("M{}h0", place);  // also shows a point that no line reaches
    } else if (is_there) {
      paths.line += (is_open ? "L" : "M") + place;
    }
    is_open = is_there;
  }
  return paths;
}

// "x y x y …" for the page's script, with "-" in a gap.
std::string values_of(const ChartSeries& series) {
  std::string text;
  for (const ChartPoint& point : series.points) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " ", format_significant(point.x, 12),
                        std::isfinite(point.y) ? format_significant(point.y, 6) : "-");
  }
  return text;
}

std::string_view class_of(Look look) {
  return look == Look::faint ? "faint" : look == Look::dots ? "dots" : "line";
}

std::string picture_of(const LineChart& chart, const ChartScale& across, const ChartScale& up) {
  std::string picture;
  for (const ChartSeries& series : chart.series) {
    const Paths paths = paths_of(series, across, up);
    picture += fmt::format(
        R"(<path class="{} {}" d="{}" data-name="{}" data-values="{}"{}/>)", class_of(series.look),
        series.colour, series.look == Look::dots ? paths.dots : paths.line,
        escape_html(series.name), values_of(series), series.is_mean ? R"( data-mean="")" : "");
    if (series.look != Look::dots && !paths.dots.empty()) {
      picture += fmt::format(R"(<path class="dots {}" d="{}"/>)", series.colour, paths.dots);
    }
  }
  return picture;
}

ChartScale scale_of(Range range, bool is_from_zero) {
  if (is_from_zero) return ChartScale::linear(0, range.high > 0 ? range.high * (1 + kRoom) : 0);
  ChartScale scale = ChartScale::fitting(range.low, range.high);
  if (scale.is_logarithmic()) {
    const double room = std::pow(range.high / range.low, kRoom);
    return ChartScale::logarithmic(range.low / room, range.high * room);
  }
  const double room = (range.high - range.low) * kRoom;
  return ChartScale::linear(range.low - room, range.high + room);
}

}  // namespace

std::string legend_html(const std::vector<ChartSeries>& series) {
  std::string text = R"(<ul class="legend">)";
  for (const ChartSeries& one : series) {
    text += fmt::format(R"(<li><i class="{} {}"></i>{}</li>)", class_of(one.look), one.colour,
                        escape_html(one.name));
  }
  return text + "</ul>";
}

std::string chart_frame(const ChartScale& across, const ChartScale& up, std::string_view picture) {
  std::string grid, labels;
  for (const double tick : up.ticks()) {
    const double place = 1 - up.place(tick);
    grid += fmt::format("M0 {}H{}", place_text(place), kSide);
    labels += fmt::format(R"(<span class="up" style="top:{:.2f}%">{}</span>)", place * 100,
                          up.label(tick));
  }
  for (const double tick : across.ticks()) {
    labels += fmt::format(R"(<span class="across" style="left:{:.2f}%">{}</span>)",
                          across.place(tick) * 100, across.label(tick));
  }
  return fmt::format(
      R"(<div class="plot" data-low="{}" data-high="{}" data-bottom="{}" data-scale="{}" )"
      R"(data-across="{}"><svg viewBox="0 0 {} {}" )"
      R"(preserveAspectRatio="none" aria-hidden="true"><path class="grid" d="{}"/>{}</svg>{}</div>)",
      across.low(), across.high(), up.low(), up.is_logarithmic() ? "log" : "linear",
      across.is_logarithmic() ? "log" : "linear", kSide, kSide, grid, picture, labels);
}

std::string line_chart_html(const LineChart& given) {
  LineChart chart = given;
  Range across, up;
  for (ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      across.add(point.x);
      up.add(point.y);
    }
    series.points = downsample(series.points, kMostPoints);
  }
  std::string body = R"(<p class="nothing">nothing to draw yet</p>)";
  if (!up.is_empty()) {
    const bool is_logarithmic = chart.is_across_logarithmic && across.low > 0;
    const ChartScale steps = is_logarithmic ? ChartScale::logarithmic(across.low, across.high)
                                            : ChartScale::whole(across.low, across.high);
    const ChartScale values = scale_of(up, chart.is_from_zero);
    body = chart_frame(steps, values, picture_of(chart, steps, values));
    if (values.is_logarithmic()) chart.title += ", logarithmic";
  }
  return fmt::format(
      "<figure class=\"chart\"><figcaption><b>{}</b>{}</figcaption>{}{}</figure>\n",
      escape_html(chart.title), chart.series.size() > 1 ? legend_html(chart.series) : "", body,
      chart.note.empty() ? "" : fmt::format("<p class=\"note\">{}</p>", escape_html(chart.note)));
}

}  // namespace fullshard::report
