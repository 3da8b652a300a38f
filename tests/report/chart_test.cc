// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "fullshard/report/charts/chart_scale.h"
#include "fullshard/report/charts/downsample.h"
#include "fullshard/report/charts/line_chart.h"

namespace fullshard::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> labels_of(const ChartScale& scale) {
  std::vector<std::string> labels;
  for (const double tick : scale.ticks()) labels.push_back(scale.label(tick));
  return labels;
}

TEST(Downsample, LeavesAShortCurveAlone) {
  const std::vector<ChartPoint> points = {{1, 2}, {2, std::nan("")}, {3, 4}};
  EXPECT_EQ(downsample(points, 5).size(), 3u);
}

TEST(Downsample, KeepsExtremesEndsAndGaps) {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 100'000; ++i) points.push_back({double(i), std::sin(i * 1e-3)});
  points[31'337].y = 50;
  points[77'777].y = -50;
  points[50'001].y = std::nan("");
  const auto fewer = downsample(points, 1000);
  EXPECT_LE(fewer.size(), 1000u);
  EXPECT_GE(fewer.size(), 600u);
  const auto has = [&](double x) {
    return std::any_of(fewer.begin(), fewer.end(), [&](const auto& point) { return point.x == x; });
  };
  EXPECT_TRUE(has(31'337) && has(77'777) && has(50'001) && has(0) && has(99'999));
  EXPECT_TRUE(std::is_sorted(fewer.begin(), fewer.end(),
                             [](const auto& a, const auto& b) { return a.x < b.x; }));
}

TEST(ChartScale, HasRoundTicks) {
  EXPECT_THAT(labels_of(ChartScale::linear(0, 10)), ElementsAre("0", "2", "4", "6", "8", "10"));
  EXPECT_THAT(labels_of(ChartScale::linear(2.1, 2.9)), ElementsAre("2.2", "2.4", "2.6", "2.8"));
  EXPECT_THAT(labels_of(ChartScale::linear(5.2, 7.73)),
              ElementsAre("5.5", "6.0", "6.5", "7.0", "7.5"));
  EXPECT_THAT(labels_of(ChartScale::linear(30, 290)),
              ElementsAre("50", "100", "150", "200", "250"));
  EXPECT_THAT(labels_of(ChartScale::linear(11, 39)), ElementsAre("15", "20", "25", "30", "35"));
  EXPECT_THAT(labels_of(ChartScale::linear(0, 3e-4)),
              ElementsAre("0", "0.0001", "0.0002", "0.0003"));
  EXPECT_THAT(labels_of(ChartScale::linear(0, 3e-5)), ElementsAre("0", "1e-5", "2e-5", "3e-5"));
  EXPECT_THAT(labels_of(ChartScale::linear(0, 50'000)),
              ElementsAre("0", "10 K", "20 K", "30 K", "40 K", "50 K"));
  EXPECT_THAT(labels_of(ChartScale::linear(100'000, 100'010)),
              ElementsAre("100000", "100002", "100004", "100006", "100008", "100010"));
}

TEST(ChartScale, GoesLogarithmicWhereValuesDifferMuch) {
  EXPECT_FALSE(ChartScale::fitting(1, 15).is_logarithmic());
  EXPECT_FALSE(ChartScale::fitting(-1, 1500).is_logarithmic());
  const ChartScale scale = ChartScale::fitting(0.5, 50);
  EXPECT_TRUE(scale.is_logarithmic());
  EXPECT_THAT(labels_of(scale), ElementsAre("0.5", "1", "2", "5", "10", "20", "50"));
  EXPECT_DOUBLE_EQ(scale.place(5), 0.5);
  EXPECT_THAT(labels_of(ChartScale::fitting(1e-3, 1e9)),
              ElementsAre("0.01", "1", "100", "10 K", "1 M", "100 M"));
}

TEST(ChartScale, CountsStepsInWholeNumbers) {
  EXPECT_THAT(labels_of(ChartScale::whole(1, 3)), ElementsAre("1", "2", "3"));
  EXPECT_THAT(labels_of(ChartScale::whole(7, 7)), ElementsAre("7"));
}

TEST(ChartScale, StandsValuesThatAreAllTheSame) {
  for (const double value : {0.0, 5.0, -5.0, 1e20, 1e-20}) {
    const ChartScale scale = ChartScale::linear(value, value);
    EXPECT_LT(scale.low(), scale.high());
    EXPECT_GE(scale.ticks().size(), 1u) << value;
    EXPECT_LE(scale.ticks().size(), 9u) << value;
  }
}

TEST(LineChart, DrawsLinesWithGapsAndLonelyPoints) {
  const std::string html = line_chart_html(
      {.title = "T <b>",
       .series = {{"a", "c1", Look::line, {{1, 0}, {2, 10}, {3, std::nan("")}, {5, 5}}}},
       .is_from_zero = true});
  EXPECT_THAT(html, HasSubstr("<b>T &lt;b&gt;</b>"));
  EXPECT_THAT(html, HasSubstr(R"(<path class="line c1" d="M0.0 1000.0L250.0 47.6" data)"));
  EXPECT_THAT(html, HasSubstr(R"(<path class="dots c1" d="M1000.0 523.8h0"/>)"));
  EXPECT_THAT(html, HasSubstr(R"(data-values="1 0 2 10 3 - 5 5")"));
  EXPECT_THAT(html, Not(HasSubstr("legend")));
}

TEST(LineChart, NamesItsCurvesWhenThereAreMore) {
  const std::string html =
      line_chart_html({.series = {{"one", "c1", Look::line, {{1, 1}}},
                                  {"two", "c6", Look::dots, {{1, 2}, {2, 2}}}}});
  EXPECT_THAT(html,
              HasSubstr(R"(<li><i class="line c1"></i>one</li><li><i class="dots c6"></i>two)"));
}

TEST(LineChart, HasAtMostAThousandPointsOfACurve) {
  ChartSeries series{"a", "c1"};
  for (int i = 0; i < 20'000; ++i) series.points.push_back({double(i), double(i % 7)});
  const std::string html = line_chart_html({.series = {series}});
  const std::regex drawn("[ML][0-9]+\\.[0-9] ");
  EXPECT_LE(std::distance(std::sregex_iterator(html.begin(), html.end(), drawn), {}), 1000);
}

TEST(LineChart, SaysThatThereIsNothing) {
  const std::string nan_only =
      line_chart_html({.series = {{"a", "c1", Look::line, {{1, std::nan("")}, {2, INFINITY}}}}});
  EXPECT_THAT(nan_only, HasSubstr("nothing to draw yet"));
  EXPECT_THAT(line_chart_html({.series = {{"a", "c1"}}}), HasSubstr("nothing to draw yet"));
}

}  // namespace
}  // namespace fullshard::report
