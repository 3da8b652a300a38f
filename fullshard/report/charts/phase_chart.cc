// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/charts/phase_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "fullshard/report/charts/line_chart.h"
#include "fullshard/report/records/number_text.h"

namespace fullshard::report {
namespace {

constexpr size_t kMostColumns = 48;
constexpr double kGap = 0.16;   // of a column's width
constexpr double kTallest = 3;  // of medians; taller columns are cut: one slow step hides the rest
enum Phase { data, forward, backward, optimizer, rest, exposed };
constexpr size_t kNumPhases = 6;

struct PhaseLook {
  std::string_view name;
  std::string_view colour;
};
constexpr std::array<PhaseLook, kNumPhases> kLooks = {{{"data", "c5"},
                                                       {"forward", "c1"},
                                                       {"backward", "c2"},
                                                       {"optimizer", "c3"},
                                                       {"other", "rest"},
                                                       {"exposed communication", "c6"}}};
constexpr PhaseLook kNotBrokenDown = {"computing and all else", "c1"};

// Time that belongs to no phase is nearly everything if phases were not recorded.
PhaseLook look_of(size_t phase, bool is_broken_down) {
  return phase == rest && !is_broken_down ? kNotBrokenDown : kLooks[phase];
}

using Seconds = std::array<double, kNumPhases>;

double total(const Seconds& seconds) {
  double sum = 0;
  for (const double part : seconds) sum += part;
  return sum;
}

double usable(double seconds) { return std::isfinite(seconds) && seconds > 0 ? seconds : 0; }

Seconds seconds_of(const StepRecord& step) {
  Seconds seconds{};
  seconds[exposed] = usable(step.exposed_comm_s);
  if (step.phases) {
    seconds[data] = usable(step.phases->data_s);
    seconds[forward] = usable(step.phases->forward_s);
    seconds[backward] = usable(step.phases->backward_s);
    seconds[optimizer] = usable(step.phases->optimizer_s);
  }
  seconds[rest] = std::max(0.0, usable(step.step_s) - total(seconds));
  return seconds;
}

Seconds mean_of(const std::vector<StepRecord>& steps, size_t from, size_t to) {
  Seconds mean{};
  for (size_t i = from; i < to; ++i) {
    const Seconds seconds = seconds_of(steps[i]);
    for (size_t phase = 0; phase < kNumPhases; ++phase) {
      mean[phase] += seconds[phase] / static_cast<double>(to - from);
    }
  }
  return mean;
}

std::vector<Seconds> columns_of(const std::vector<StepRecord>& steps) {
  const size_t count = std::min(kMostColumns, steps.size());
  std::vector<Seconds> columns;
  for (size_t i = 0; i < count; ++i) {
    const size_t from = steps.size() * i / count, to = steps.size() * (i + 1) / count;
    columns.push_back(mean_of(steps, from, to));
  }
  return columns;
}

double height_for(const std::vector<Seconds>& columns) {
  std::vector<double> totals;
  for (const Seconds& column : columns) totals.push_back(total(column));
  std::sort(totals.begin(), totals.end());
  const double median = totals[totals.size() / 2];
  return median > 0 ? std::min(totals.back(), kTallest * median) : totals.back();
}

// Columns have a width, so half a step is added at both ends of the axis.
ChartScale steps_scale(const std::vector<StepRecord>& steps) {
  const double first = static_cast<double>(steps.front().step);
  const double last = static_cast<double>(steps.back().step);
  const double half =
      steps.size() > 1 ? (last - first) / static_cast<double>(steps.size() - 1) / 2 : 0.5;
  return ChartScale::whole(first - half, last + half);
}

std::string columns_picture(const std::vector<Seconds>& columns, const ChartScale& up,
                            bool is_broken_down) {
  const double width = 1000.0 / static_cast<double>(columns.size());
  std::string picture;
  for (size_t i = 0; i < columns.size(); ++i) {
    double below = 0;
    const double left = (static_cast<double>(i) + kGap / 2) * width;
    for (size_t phase = 0; phase < kNumPhases; ++phase) {
      const double above = below + columns[i][phase];
      const double top = 1000 * (1 - up.place(above)), bottom = 1000 * (1 - up.place(below));
      below = above;
      if (bottom - top < 0.05) continue;
      picture += fmt::format(
          R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)",
          look_of(phase, is_broken_down).colour, left, top, width * (1 - kGap), bottom - top);
    }
  }
  return picture;
}

std::string means_table(const Seconds& means, bool is_broken_down) {
  const double all = total(means);
  std::string rows;
  for (size_t phase = 0; phase < kNumPhases; ++phase) {
    if (means[phase] == 0 && phase != exposed) continue;
    rows += fmt::format(
        R"(<tr><td><i class="{}"></i>{}</td><td class="number">{}</td><td class="number">{}</td></tr>)",
        look_of(phase, is_broken_down).colour, look_of(phase, is_broken_down).name,
        format_seconds(means[phase]), all > 0 ? format_percent(means[phase] / all) : "");
  }
  return fmt::format(
      R"(<div class="wide"><table><thead><tr><th>mean of a step</th><th class="number">{}</th>)"
      R"(<th class="number">share</th></tr></thead><tbody>{}</tbody></table></div>)",
      format_seconds(all), rows);
}

std::string communication_note(const std::vector<StepRecord>& steps) {
  double communication = 0, waited = 0;
  for (const StepRecord& step : steps) {
    communication += usable(step.comm_s) / static_cast<double>(steps.size());
    waited += usable(step.exposed_comm_s) / static_cast<double>(steps.size());
  }
  if (communication == 0) return "No communication.";
  return fmt::format("Communication takes {} of a step; {} of it is hidden behind computing.",
                     format_seconds(communication),
                     format_percent(std::clamp(1 - waited / communication, 0.0, 1.0)));
}

std::string cut_note(const std::vector<Seconds>& columns, double height) {
  double tallest = 0;
  int count = 0;
  for (const Seconds& column : columns) {
    tallest = std::max(tallest, total(column));
    count += total(column) > height ? 1 : 0;
  }
  if (count == 0) return {};
  return fmt::format(" {} cut at the top; the tallest would be {}.",
                     count == 1 ? "One column is" : fmt::format("{} columns are", count),
                     format_seconds(tallest));
}

}  // namespace

std::string phase_chart_html(const std::vector<StepRecord>& steps) {
  const bool is_broken_down = std::any_of(steps.begin(), steps.end(),
                                          [](const auto& step) { return step.phases.has_value(); });
  std::string body = R"(<p class="nothing">nothing to draw yet</p>)";
  std::string legend;
  if (!steps.empty()) {
    const std::vector<Seconds> columns = columns_of(steps);
    const Seconds means = mean_of(steps, 0, steps.size());
    const double height = height_for(columns);
    const ChartScale across = steps_scale(steps);
    const ChartScale up = ChartScale::linear(0, height * 1.02);
    body = chart_frame(across, up, columns_picture(columns, up, is_broken_down)) +
           fmt::format("<p class=\"note\">{}{}</p>", communication_note(steps),
                       cut_note(columns, height * 1.02)) +
           means_table(means, is_broken_down);
    std::vector<ChartSeries> series;
    for (size_t phase = 0; phase < kNumPhases; ++phase) {
      if (means[phase] == 0) continue;
      const PhaseLook look = look_of(phase, is_broken_down);
      series.push_back({std::string(look.name), std::string(look.colour)});
    }
    legend = legend_html(series);
  }
  return fmt::format(
      "<figure class=\"chart\"><figcaption><b>Seconds of a step, over steps</b>{}</figcaption>{}"
      "</figure>\n",
      legend, body);
}

}  // namespace fullshard::report
