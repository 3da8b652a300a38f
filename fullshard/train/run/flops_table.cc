// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/flops_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "fullshard/base/bytes.h"
#include "fullshard/report/records/number_text.h"

namespace fullshard::train {
namespace {

std::string format_flops(double flops, std::string_view unit) {
  constexpr std::array<std::string_view, 6> kPrefixes = {"", "K", "M", "G", "T", "P"};
  size_t prefix = 0;
  for (; flops >= 1000 && prefix + 1 < kPrefixes.size(); flops /= 1000) ++prefix;
  return fmt::format("{:.2f} {}{}", flops, kPrefixes[prefix], unit);
}

std::string speed_of(double flops, double seconds) {
  return seconds > 0 ? format_flops(flops / seconds, "FLOPS") : "-";
}

std::string row_of(std::string_view name, const std::string& value) {
  return fmt::format("{:<64}{}\n", fmt::format("{}:", name), value);
}

UnitFlops sum_of(const std::vector<UnitFlops>& units) {
  UnitFlops sum;
  for (const UnitFlops& unit : units) {
    sum.parameters += unit.parameters;
    sum.forward += unit.forward;
    sum.backward += unit.backward;
  }
  return sum;
}

// The first `depth` parts of a path; nothing where it has fewer.
std::optional<std::string> beginning_of(const std::string& path, int64_t depth) {
  size_t end = 0;
  for (int64_t part = 0; part < depth; ++part) {
    if (end == std::string::npos || path.empty()) return std::nullopt;
    end = path.find('.', part == 0 ? 0 : end + 1);
  }
  return path.substr(0, end);
}

std::string top_of(const std::map<std::string, UnitFlops>& modules, int64_t count,
                   const std::function<double(const UnitFlops&)>& value,
                   const std::function<std::string(const UnitFlops&)>& text) {
  std::vector<std::pair<std::string, UnitFlops>> sorted(modules.begin(), modules.end());
  std::ranges::stable_sort(
      sorted, [&](const auto& a, const auto& b) { return value(a.second) > value(b.second); });
  if (static_cast<int64_t>(sorted.size()) > count) sorted.resize(static_cast<size_t>(count));
  std::vector<std::string> parts;
  for (const auto& [name, sums] : sorted) parts.push_back(fmt::format("{} {}", name, text(sums)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// What lies below each path of so many parts. Depth 0 is the whole model.
std::map<std::string, UnitFlops> modules_at(const std::vector<UnitFlops>& units, int64_t depth) {
  std::map<std::string, UnitFlops> modules;
  for (const UnitFlops& unit : units) {
    const auto path =
        depth == 0 ? std::optional(units.front().class_name) : beginning_of(unit.path, depth);
    if (!path) continue;
    UnitFlops& sum = modules[*path];
    sum.parameters += unit.parameters;
    sum.forward += unit.forward;
  }
  return modules;
}

std::string depths_text(const FlopsProfile& profile, const FlopsProfilerOptions& options) {
  std::string text = fmt::format(
      "Top {} modules in terms of parameters and forward FLOPs at "
      "different depths of the model:\n",
      options.top_modules);
  for (int64_t depth = 0;; ++depth) {
    const auto modules = modules_at(profile.units, depth);
    if (modules.empty() || (options.module_depth >= 0 && depth > options.module_depth)) break;
    text += fmt::format("depth {}:\n", depth);
    text += fmt::format("    params    - {}\n",
                        top_of(
                            modules, options.top_modules,
                            [](const UnitFlops& unit) { return double(unit.parameters); },
                            [](const UnitFlops& unit) { return format_count(unit.parameters); }));
    text += fmt::format(
        "    fwd flops - {}\n",
        top_of(
            modules, options.top_modules, [](const UnitFlops& unit) { return unit.forward; },
            [](const UnitFlops& unit) { return format_flops(unit.forward, ""); }));
  }
  return text;
}

std::string detailed_text(const std::vector<UnitFlops>& units, const UnitFlops& all) {
  std::string text = fmt::format("{:<44}{:>12}{:>9}{:>14}{:>9}{:>14}\n", "unit", "params", "",
                                 "fwd flops", "", "bwd flops");
  const auto share = [](double part, double whole) {
    return report::format_percent(whole > 0 ? part / whole : 0);
  };
  for (const UnitFlops& unit : units) {
    text += fmt::format(
        "{:<44}{:>12}{:>9}{:>14}{:>9}{:>14}\n",
        fmt::format("{} ({})", unit.path.empty() ? "root" : unit.path, unit.class_name),
        format_count(unit.parameters), share(double(unit.parameters), double(all.parameters)),
        format_flops(unit.forward, ""), share(unit.forward, all.forward),
        format_flops(unit.backward, ""));
  }
  return text;
}

}  // namespace

std::string flops_table(const FlopsProfile& profile, const FlopsProfilerOptions& options) {
  const UnitFlops all = sum_of(profile.units);
  const auto count = static_cast<double>(profile.accumulation);
  const double forward_s = profile.forward_s / count, backward_s = profile.backward_s / count;
  std::string text = fmt::format(
      "Flops profile at step {} (products and attention; one "
      "micro-batch on one rank):\n",
      profile.step);
  text += row_of("world size", fmt::format("{}", profile.world_size));
  text += row_of("batch size per rank", fmt::format("{}", profile.micro_batch));
  text += row_of("params of model", format_count(all.parameters));
  text += row_of("fwd flops", format_flops(all.forward, ""));
  text += row_of(profile.recomputes ? "bwd flops, with the forward that is run again" : "bwd flops",
                 format_flops(all.backward, ""));
  text += row_of("fwd latency", report::format_seconds(forward_s));
  text += row_of("bwd latency", report::format_seconds(backward_s));
  text += row_of("fwd FLOPS = fwd flops / fwd latency", speed_of(all.forward, forward_s));
  text += row_of("bwd FLOPS = bwd flops / bwd latency", speed_of(all.backward, backward_s));
  text += row_of("fwd+bwd FLOPS = fwd+bwd flops / fwd+bwd latency",
                 speed_of(all.forward + all.backward, forward_s + backward_s));
  text += row_of("step latency", report::format_seconds(profile.optimizer_s));
  text +=
      row_of("iter latency, all micro-batches and waiting", report::format_seconds(profile.step_s));
  const auto samples = static_cast<double>(profile.micro_batch * profile.world_size) * count;
  text += row_of("samples/second",
                 profile.step_s > 0 ? fmt::format("{:.2f}", samples / profile.step_s) : "-");
  text += depths_text(profile, options);
  if (options.is_detailed) text += detailed_text(profile.units, all);
  return text;
}

}  // namespace fullshard::train
