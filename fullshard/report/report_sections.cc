// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/report_sections.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "fullshard/base/bytes.h"
#include "fullshard/report/charts/html_text.h"
#include "fullshard/report/charts/line_chart.h"
#include "fullshard/report/charts/memory_bars.h"
#include "fullshard/report/charts/phase_chart.h"
#include "fullshard/report/records/number_text.h"

namespace fullshard::report {
namespace {

constexpr size_t kLongText = 600;
constexpr size_t kMostWarnings = 50;
constexpr size_t kWorthSmoothing = 100;  // steps
constexpr double kFewestInMean = 10;

std::string text_of(std::string_view text, size_t bytes = kLongText) {
  return escape_html(shortened(text, bytes));
}

std::string tile(std::string_view name, const std::string& value, const std::string& below) {
  return fmt::format("<div class=\"tile\"><dt>{}</dt><dd>{}<small>{}</small></dd></div>\n", name,
                     value, below);
}

// "llama, 15.2 M parameters, 2 ranks (1 replica × 2 shards), cpu"
std::string about(const RunRecord& record) {
  std::vector<std::string> parts;
  if (!record.model.name.empty()) parts.push_back(text_of(record.model.name, 100));
  if (!record.model.architecture.empty() && record.model.architecture != record.model.name) {
    parts.push_back(text_of(record.model.architecture, 100));
  }
  if (record.model.parameters > 0) {
    parts.push_back(format_count(record.model.parameters) + " parameters");
  }
  const RunMesh& mesh = record.mesh;
  parts.push_back(fmt::format("{} rank{}", mesh.world, mesh.world == 1 ? "" : "s"));
  if (mesh.world > 1) {
    parts.push_back(fmt::format("{} replica{} &times; {} shard{}", mesh.replicas,
                                mesh.replicas == 1 ? "" : "s", mesh.shards,
                                mesh.shards == 1 ? "" : "s"));
  }
  if (!record.device.empty()) parts.push_back(text_of(record.device, 100));
  std::string line;
  for (const std::string& part : parts) line += (line.empty() ? "" : " &middot; ") + part;
  return line;
}

std::string standing(const RunFolder& run, const RunTotals& totals, double now) {
  const int64_t step = totals.last() ? totals.last()->step : 0;
  const int64_t planned = run.record->num_steps;
  std::string text =
      planned > 0 ? fmt::format("Step {} of {}", step, planned) : fmt::format("Step {}", step);
  if (run.record->status != RunStatus::running) return text + ".";
  const double silence = std::max(0.0, now - run.last_write);
  if (!run.is_live(now)) {
    return text + fmt::format("; nothing was written for {}: it may have been killed.",
                              format_clock(silence));
  }
  if (planned > step && step > 0) {
    text += fmt::format(", about {} left",
                        format_clock(totals.median_step_s() * static_cast<double>(planned - step)));
  }
  return text +
         fmt::format("; last update {} ago. This page reloads itself.", format_clock(silence));
}

std::vector<ChartPoint> points_of(const std::vector<StepRecord>& steps,
                                  double (*value)(const StepRecord&)) {
  std::vector<ChartPoint> points;
  for (const StepRecord& step : steps) {
    points.push_back({static_cast<double>(step.step), value(step)});
  }
  return points;
}

// An exponential mean over about a hundredth of the run.
std::vector<ChartPoint> smoothed(std::vector<ChartPoint> points) {
  const double width = std::max(static_cast<double>(points.size()) / 100, kFewestInMean);
  const double newest = 2 / (width + 1);
  double mean = 0, weight = 0;
  for (ChartPoint& point : points) {
    if (!std::isfinite(point.y)) continue;  // stays a gap
    mean += newest * (point.y - mean);
    weight += newest * (1 - weight);
    point.y = mean / weight;
  }
  return points;
}

// A long curve is drawn faint, with its mean over it.
LineChart chart_of(std::string title, std::string name, const std::vector<ChartPoint>& points) {
  const bool is_long = points.size() >= kWorthSmoothing;
  LineChart chart{.title = std::move(title)};
  chart.series.push_back(
      {is_long ? "each step" : std::move(name), "c1", is_long ? Look::faint : Look::line, points});
  if (is_long) chart.series.push_back({"smoothed", "c1", Look::line, smoothed(points), true});
  return chart;
}

std::string loss_chart(const std::vector<StepRecord>& steps) {
  const auto losses = points_of(steps, [](const StepRecord& step) { return step.loss; });
  LineChart chart = chart_of("Loss over steps", "training", losses);
  ChartSeries evaluations{.name = "evaluation", .colour = "c6", .look = Look::dots};
  for (const StepRecord& step : steps) {
    if (step.eval_loss) {
      evaluations.points.push_back({static_cast<double>(step.step), *step.eval_loss});
    }
  }
  if (!evaluations.points.empty()) chart.series.push_back(std::move(evaluations));
  const auto broken = std::count_if(steps.begin(), steps.end(),
                                    [](const auto& step) { return !std::isfinite(step.loss); });
  if (broken > 0) {
    chart.note = fmt::format("{} step{} had a loss that is not finite: gaps in the curve.", broken,
                             broken == 1 ? "" : "s");
  }
  return line_chart_html(chart);
}

std::string lr_chart(const std::vector<StepRecord>& steps) {
  const auto points = points_of(steps, [](const StepRecord& step) { return step.lr; });
  return line_chart_html({.title = "Learning rate over steps",
                          .series = {{"lr", "c1", Look::line, points}},
                          .is_from_zero = true});
}

std::string speed_chart(const std::vector<StepRecord>& steps) {
  const auto points = points_of(steps, [](const StepRecord& step) { return step.tokens_per_s; });
  LineChart chart = chart_of("Tokens/s over steps", "tokens/s", points);
  chart.is_from_zero = true;
  return line_chart_html(chart);
}

std::string norm_chart(const std::vector<StepRecord>& steps) {
  const auto points = points_of(
      steps, [](const StepRecord& step) { return step.grad_norm.value_or(std::nan("")); });
  return line_chart_html(chart_of("Gradient norm over steps", "norm", points));
}

std::string planned_memory(const MemoryPlan& plan) {
  std::vector<std::string> parts;
  for (const PlannedTier& tier : plan.planned) {
    parts.push_back(fmt::format("{} on the {} (in the {})", format_bytes(tier.peak_bytes),
                                tier.tier, tier.peak_at));
  }
  if (parts.empty()) return {};
  return fmt::format("Planned before the start: {}. ", fmt::join(parts, ", "));
}

std::string measured_memory(const RunTotals& totals) {
  if (!totals.last()) return {};
  const std::string device = totals.device_peak_bytes() > 0
                                 ? format_bytes(totals.device_peak_bytes()) + " on the device, "
                                 : "";
  return fmt::format(
      "Measured at the peak of the rank with the most: {}{} on the host (with the program itself).",
      device, format_bytes(totals.host_peak_bytes()));
}

std::string loss_tile(const RunTotals& totals) {
  const auto best = totals.best();
  return tile("loss", format_loss(totals.last()->loss),
              best ? fmt::format("best {} at step {}", format_loss(best->loss), best->step) : "");
}

std::string memory_tile(const RunTotals& totals) {
  const bool has_device = totals.device_peak_bytes() > 0;
  return tile("peak memory",
              format_bytes(has_device ? totals.device_peak_bytes() : totals.host_peak_bytes()),
              has_device
                  ? fmt::format("device of a rank; host {}", format_bytes(totals.host_peak_bytes()))
                  : "host of a rank");
}

std::string disk_tile(const DiskTraffic& disk) {
  return tile("written to disk", fmt::format("{} a day", format_bytes(disk.bytes_written_per_day)),
              fmt::format("{} written, {} read", format_bytes(disk.bytes_written),
                          format_bytes(disk.bytes_read)));
}

std::string time_tile(const RunRecord& record, const RunTotals& totals) {
  if (!record.ended) return tile("time", format_clock(totals.seconds()), "inside steps");
  return tile("time", format_clock(static_cast<double>(*record.ended - record.started)),
              clock_note(totals, record.first_step.value_or(0)));
}

}  // namespace

std::string title_of(const RunFolder& run) {
  std::string_view path = run.path;
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.empty() || name == "." ? "run" : shortened(name, 120);
}

std::string header_section(const RunFolder& run, const RunTotals& totals, double now) {
  const std::string_view status = run.record ? name_of(run.record->status) : "unknown";
  std::string text = fmt::format(
      "<header><div class=\"top\"><h1>{}</h1><span class=\"status {}\">{}</span></div>\n",
      escape_html(title_of(run)), status, status);
  if (!run.record) {
    return text + "<p class=\"about\">There is no readable run.json in this folder" +
           (run.metrics.steps.empty() ? ", and no step has been recorded.</p></header>\n"
                                      : ".</p></header>\n");
  }
  text += fmt::format("<p class=\"about\">{}</p>\n<p class=\"about\">{}</p>\n", about(*run.record),
                      standing(run, totals, now));
  if (run.record->status == RunStatus::running && run.record->num_steps > 0) {
    text += fmt::format("<progress max=\"{}\" value=\"{}\"></progress>\n", run.record->num_steps,
                        totals.last() ? totals.last()->step : 0);
  }
  if (!run.record->problem.empty()) {
    text += fmt::format("<div class=\"box hot\"><b>Why it ended</b><pre>{}</pre></div>\n",
                        text_of(run.record->problem, 4000));
  }
  return text + "</header>\n";
}

std::string numbers_section(const RunFolder& run, const RunTotals& totals) {
  if (!totals.last()) return {};
  std::string tiles = loss_tile(totals);
  if (const auto evaluation = totals.last_evaluation()) {
    const auto best = totals.best_evaluation();
    tiles +=
        tile("evaluation loss", format_loss(evaluation->loss),
             best ? fmt::format("best {} at step {}", format_loss(best->loss), best->step) : "");
  }
  tiles += tile("tokens/s", format_rate(totals.median_tokens_per_s()), "median, all ranks");
  if (const auto mfu = totals.median_mfu()) tiles += tile("MFU", format_percent(*mfu), "median");
  tiles += memory_tile(totals);
  if (run.record && run.record->disk) tiles += disk_tile(*run.record->disk);
  tiles +=
      tile("tokens", format_count(totals.tokens()),
           fmt::format("in {} step{}", totals.num_steps(), totals.num_steps() == 1 ? "" : "s"));
  tiles += time_tile(run.record.value_or(RunRecord{}), totals);
  const int64_t since = totals.first_step();
  tiles += tile("steps", fmt::format("{}", totals.last()->step),
                fmt::format("{} skipped{}", totals.num_skipped(),
                            since > 0 ? fmt::format("; counted since step {}", since) : ""));
  return "<dl class=\"tiles\">\n" + tiles + "</dl>\n";
}

std::string warnings_section(const RunFolder& run) {
  std::vector<std::string> lines;
  if (run.record) lines = run.record->warnings;
  lines.insert(lines.end(), run.problems.begin(), run.problems.end());
  if (run.metrics.num_left_out > 0) {
    lines.push_back(fmt::format("metrics.jsonl: {} line{} left out of this page",
                                run.metrics.num_left_out,
                                run.metrics.num_left_out == 1 ? "" : "s"));
  }
  if (lines.empty()) return {};
  std::string items;
  for (size_t i = 0; i < std::min(lines.size(), kMostWarnings); ++i) {
    items += fmt::format("<li>{}</li>\n", text_of(lines[i]));
  }
  if (lines.size() > kMostWarnings) {
    items += fmt::format("<li>and {} more</li>\n", lines.size() - kMostWarnings);
  }
  return fmt::format("<h2>Warnings</h2>\n<div class=\"box warm\"><ul>\n{}</ul></div>\n", items);
}

std::string pictures_section(const RunFolder& run, const RunTotals& totals) {
  const std::vector<StepRecord>& steps = run.metrics.steps;
  const RunRecord record = run.record.value_or(RunRecord{});
  const bool has_norm =
      std::any_of(steps.begin(), steps.end(), [](const auto& step) { return step.grad_norm; });
  std::string text = "<div class=\"charts\">\n" + loss_chart(steps) + lr_chart(steps);
  if (has_norm) text += norm_chart(steps);
  text += speed_chart(steps);
  text += phase_chart_html(steps);
  text += memory_bars_html(record.memory, record.mesh.world,
                           planned_memory(record.memory) + measured_memory(totals));
  return text + "</div>\n";
}

}  // namespace fullshard::report
