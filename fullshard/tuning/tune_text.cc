// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tuning/tune_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "fullshard/base/bytes.h"
#include "fullshard/report/records/number_text.h"

namespace fullshard::tuning {
namespace {

std::string bytes_or_dash(const std::optional<int64_t>& bytes) {
  return bytes ? format_bytes(*bytes) : "-";
}

}  // namespace

std::string table_head() {
  return fmt::format("{:<42} {:>10} {:>10} {:>12}\n", "rung", "planned", "measured", "tokens/s");
}

std::string table_line(const RungResult& result) {
  const std::string speed =
      result.tokens_per_s ? report::format_rate(*result.tokens_per_s) : std::string("-");
  const std::string why = result.runs() || result.why.empty() ? "" : "  " + result.why;
  return fmt::format("{:<42} {:>10} {:>10} {:>12}{}\n", result.rung.title(),
                     bytes_or_dash(result.planned_bytes), bytes_or_dash(result.peak_bytes), speed,
                     why);
}

std::string choice_text(const Climbed& climbed) {
  const RungResult& winner = climbed.results[*climbed.winner];
  const auto num_running = std::count_if(climbed.results.begin(), climbed.results.end(),
                                         [](const RungResult& result) { return result.runs(); });
  const std::string how_many =
      num_running == 1 ? "the only one that was measured and fits"
                       : fmt::format("the fastest of {} that were measured and fit", num_running);
  return fmt::format("chosen: {}: {} tokens/s, {}; {} at most on a rank{}", winner.rung.title(),
                     report::format_rate(*winner.tokens_per_s), how_many,
                     bytes_or_dash(winner.peak_bytes),
                     climbed.is_cut_short ? "; the budget ended before all were tried" : "");
}

std::string nothing_fits_text(const Climbed& climbed) {
  const RungResult* planned = nullptr;  // the one that needs the least
  const RungResult* failed = nullptr;
  for (const RungResult& result : climbed.results) {
    if (result.is_measured && !result.fits && failed == nullptr) failed = &result;
    if (result.is_measured || !result.planned_bytes) continue;
    if (planned == nullptr || result.planned_bytes < planned->planned_bytes) planned = &result;
  }
  std::string text = "tune: nothing fits";
  if (planned != nullptr) {
    text += fmt::format(". {}, which needs the least: {}", planned->rung.title(), planned->why);
    if (!planned->changes.empty()) {
      text += fmt::format(". In order of cost: {}", fmt::join(planned->changes, ", "));
    }
  }
  if (failed != nullptr) text += fmt::format(". {}: {}", failed->rung.title(), failed->why);
  return text;
}

}  // namespace fullshard::tuning
