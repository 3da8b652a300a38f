// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/watch_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "fullshard/base/bytes.h"
#include "fullshard/base/printable.h"
#include "fullshard/report/records/number_text.h"

namespace fullshard::report {
namespace {

constexpr size_t kWatchedSteps = 40;  // one column of the sparkline for each
constexpr int kLongestBar = 40;

// At most so many characters, not bytes.
std::string in_columns(const std::string& text, int width) {
  int columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
    if (begins && ++columns > width) return text.substr(0, i);
  }
  return text;
}

std::string progress_bar(int64_t done, int64_t all, int columns) {
  const auto filled = static_cast<int>(done * columns / std::max<int64_t>(all, 1));
  std::string bar;
  for (int i = 0; i < columns; ++i) bar += i < filled ? "█" : "░";
  return bar;
}

int64_t peak_of(const StepRecord& record) {
  return record.device_peak_bytes > 0 ? record.device_peak_bytes : record.host_peak_bytes;
}

}  // namespace

std::string sparkline(const std::vector<double>& values) {
  constexpr std::array<std::string_view, 8> kHeights = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  double low = INFINITY, high = -INFINITY;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  std::string text;
  for (const double value : values) {
    if (!std::isfinite(value)) {
      text += ' ';
      continue;
    }
    const double share = high > low ? (value - low) / (high - low) : 0;
    text += kHeights[static_cast<size_t>(std::lround(share * (kHeights.size() - 1)))];
  }
  return text;
}

void WatchView::add(const StepRecord& record) {
  last_ = record;
  newest_.push_back(record);
  if (newest_.size() > kWatchedSteps) newest_.pop_front();
}

std::optional<double> WatchView::seconds_left(int64_t num_steps) const {
  if (newest_.empty() || num_steps <= 0) return std::nullopt;
  std::vector<double> seconds;
  for (const StepRecord& step : newest_) seconds.push_back(step.step_s);
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle * static_cast<double>(std::max<int64_t>(0, num_steps - last_->step));
}

std::vector<std::string> WatchView::lines(const RunRecord& run, double silence, int width) const {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{}  {}  {}, {} rank{} on {}", base::printable(name_),
                              name_of(run.status), base::printable(run.model.name), run.mesh.world,
                              run.mesh.world == 1 ? "" : "s", base::printable(run.device)));
  if (!last_) {
    lines.emplace_back("no step yet");
  } else {
    std::string step = fmt::format("step {}", last_->step);
    if (run.num_steps > 0) {
      step += fmt::format(
          " of {}  {}", run.num_steps,
          progress_bar(last_->step, run.num_steps, std::clamp(width - 40, 4, kLongestBar)));
    }
    if (const auto left = seconds_left(run.num_steps)) {
      step += fmt::format("  {} left", format_clock(*left));
    }
    lines.push_back(step);
    std::vector<double> losses;
    for (const StepRecord& one : newest_) losses.push_back(one.loss);
    std::string loss = fmt::format("loss {}  {}", format_loss(last_->loss), sparkline(losses));
    if (last_->eval_loss) loss += "  evaluation " + format_loss(*last_->eval_loss);
    lines.push_back(loss);
    lines.push_back(fmt::format("{} tokens/s  {}  lr {}{}", format_rate(last_->tokens_per_s),
                                format_bytes(peak_of(*last_)), format_significant(last_->lr, 3),
                                last_->mfu ? "  MFU " + format_percent(*last_->mfu) : ""));
  }
  lines.push_back(fmt::format("last update {} ago", format_clock(silence)));
  for (std::string& line : lines) line = in_columns(line, width);
  return lines;
}

}  // namespace fullshard::report
