// SPDX-License-Identifier: Apache-2.0
#include "fullshard/simulation/simulation_text.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "fullshard/base/bytes.h"
#include "fullshard/report/charts/html_text.h"
#include "fullshard/report/charts/line_chart.h"
#include "fullshard/report/page_assets.h"
#include "fullshard/report/records/number_text.h"

namespace fullshard::simulation {
namespace {

int64_t device_peak(const Simulation& simulation) {
  return simulation.memory.on(tiers::Tier::device).peak_bytes;
}

bool fits(const Simulation& simulation, const Cluster& cluster) {
  return device_peak(simulation) <= cluster.gpu.memory_bytes;
}

std::vector<std::string> cells_of(const Simulation& simulation, const Cluster& cluster) {
  return {fmt::format("{}", simulation.ranks),
          report::format_seconds(simulation.step_seconds),
          fmt::format("{:.0f}", simulation.tokens_per_second_per_gpu()),
          report::format_rate(simulation.tokens_per_second()),
          report::format_seconds(simulation.timeline.exposed_communication),
          format_bytes(device_peak(simulation)),
          fits(simulation, cluster) ? "yes" : "no"};
}

const std::vector<std::string>& headings() {
  static const std::vector<std::string> names = {
      "ranks", "step", "tokens/s/GPU", "tokens/s", "exposed comm.", "GPU memory", "fits"};
  return names;
}

std::string rate_text(double bytes_per_second) {
  return fmt::format("{} GB/s", report::format_significant(bytes_per_second / 1e9, 4));
}

// The two constants of a machine, and its other rates.
std::string basis_text(const Cluster& cluster, const KernelTable& kernels) {
  return fmt::format(
      "{}: products sustain {:.0f} TFLOP/s and attention {:.0f} (the two fitted constants of a "
      "machine), memory {}, {} GPUs per host, {} inside, {} between hosts per GPU; {}",
      cluster.name, cluster.gpu.bf16_flops / 1e12, cluster.gpu.attention_flops / 1e12,
      rate_text(cluster.gpu.memory_bandwidth), cluster.gpus_per_host,
      rate_text(cluster.inside.bandwidth), rate_text(cluster.between.bandwidth),
      kernels.device().empty()
          ? std::string("no table of kernels: a roofline")
          : fmt::format("kernels as timed on {}, others by a roofline", kernels.device()));
}

nlohmann::ordered_json object_of(const Simulation& simulation, const Cluster& cluster) {
  const auto& timeline = simulation.timeline;
  return {{"ranks", simulation.ranks},
          {"step_s", simulation.step_seconds},
          {"tokens_per_s", simulation.tokens_per_second()},
          {"tokens_per_s_per_gpu", simulation.tokens_per_second_per_gpu()},
          {"exposed_communication_s", timeline.exposed_communication},
          {"device_peak_bytes", device_peak(simulation)},
          {"communication_s", timeline.communication},
          {"sent_bytes", static_cast<int64_t>(simulation.sent.all)},
          {"sent_between_hosts_bytes", static_cast<int64_t>(simulation.sent.between_hosts)},
          {"exposed_copies_s", timeline.exposed_copies},
          {"kernels_s", timeline.kernels},
          {"fits", fits(simulation, cluster)},
          {"cluster", cluster.name}};
}

std::string chart_over_ranks(const std::string& title, const std::string& name,
                             const std::vector<Simulation>& simulations,
                             const std::function<double(const Simulation&)>& value) {
  report::ChartSeries series{.name = name, .colour = "c1"};
  for (const auto& one : simulations) {
    series.points.push_back({static_cast<double>(one.ranks), value(one)});
  }
  return report::line_chart_html({.title = title,
                                  .note = "Over the number of ranks.",
                                  .series = {series},
                                  .is_from_zero = true,
                                  .is_across_logarithmic = true});
}

std::string table_html(const std::vector<Simulation>& simulations, const Cluster& cluster) {
  std::string text = "<div class=\"wide\"><table><thead><tr>";
  for (const auto& name : headings()) text += fmt::format("<th>{}</th>", name);
  text += "</tr></thead><tbody>\n";
  for (const auto& one : simulations) {
    text += "<tr>";
    for (const auto& cell : cells_of(one, cluster)) {
      text += fmt::format("<td>{}</td>", report::escape_html(cell));
    }
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

}  // namespace

// bench/results/simulation.md
std::string simulation_error_text() {
  return "Of 40 published runs in bf16, 33 were within 10 % of their simulation and 37 within 15 "
         "%, "
         "each with constants of its machine and its software; programs with other kernels than "
         "Fullshard's sustain less than a preset says.";
}

std::string simulation_text(const std::vector<Simulation>& simulations, const Cluster& cluster,
                            const KernelTable& kernels) {
  const auto line = [](const std::vector<std::string>& cells) {
    return fmt::format("{:>6} {:>9} {:>13} {:>9} {:>14} {:>11} {:>5}\n", cells[0], cells[1],
                       cells[2], cells[3], cells[4], cells[5], cells[6]);
  };
  std::string text = line(headings());
  for (const auto& one : simulations) text += line(cells_of(one, cluster));
  return fmt::format("{}{}\n{}\n", text, basis_text(cluster, kernels), simulation_error_text());
}

std::string simulation_json(const std::vector<Simulation>& simulations, const Cluster& cluster) {
  if (simulations.size() == 1) return object_of(simulations.front(), cluster).dump();
  auto all = nlohmann::ordered_json::array();
  for (const auto& one : simulations) all.push_back(object_of(one, cluster));
  return all.dump();
}

std::string simulation_page(const std::vector<Simulation>& simulations, const Cluster& cluster,
                            const KernelTable& kernels, std::string_view title) {
  const std::string name = report::escape_html(title);
  const std::string charts =
      chart_over_ranks("Tokens/s per GPU", "tokens/s/GPU", simulations,
                       [](const Simulation& one) { return one.tokens_per_second_per_gpu(); }) +
      chart_over_ranks("Exposed communication, share of a step in %", "%", simulations,
                       [](const Simulation& one) {
                         return 100 * one.timeline.exposed_communication / one.step_seconds;
                       }) +
      chart_over_ranks("GPU memory, GiB", "GiB", simulations, [](const Simulation& one) {
        return static_cast<double>(device_peak(one)) / static_cast<double>(kGiB);
      });
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n<h1>{}</h1>\n"
      "<p class=\"note\">Simulated, not measured. {}. {}</p>\n{}<div class=\"box\">{}</div>\n"
      "</main>\n<script>{}</script>\n</body>\n</html>\n",
      report::page_policy(), name, report::page_style(), name,
      report::escape_html(basis_text(cluster, kernels)), simulation_error_text(), charts,
      table_html(simulations, cluster), report::page_script());
}

}  // namespace fullshard::simulation
