// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/progress_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <vector>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/report/records/number_text.h"

namespace fullshard::report {
namespace {

constexpr double kSecondsBetweenDrawings = 0.1;
constexpr double kNewest = 0.1;  // the weight of the newest step in the smoothed time
constexpr std::string_view kWipe = "\r\x1b[K";

// A part of the line. If the parts do not fit, the one with the highest rank is dropped first.
struct Part {
  std::string text;
  int rank;
};

std::vector<Part> parts_of(const StepRecord& record, int64_t num_steps,
                           std::optional<double> seconds_left) {
  std::vector<Part> parts;
  parts.push_back({num_steps > 0 ? fmt::format("step {}/{}", record.step, num_steps)
                                 : fmt::format("step {}", record.step),
                   0});
  parts.push_back({"loss " + format_loss(record.loss), 1});
  if (record.eval_loss) parts.push_back({"eval loss " + format_loss(*record.eval_loss), 4});
  parts.push_back({"lr " + format_significant(record.lr, 3), 5});
  if (record.skipped) {
    const bool is_scaled = record.loss_scale != 1;
    parts.push_back(
        {is_scaled ? "skipped at scale " + format_significant(record.loss_scale, 6) : "skipped",
         2});
  } else if (record.grad_norm) {
    parts.push_back({"norm " + format_significant(*record.grad_norm, 3), 6});
  }
  parts.push_back({format_rate(record.tokens_per_s) + " tokens/s", 4});
  if (record.mfu) parts.push_back({"MFU " + format_percent(*record.mfu), 7});
  const int64_t peak = std::max(record.device_peak_bytes, int64_t{0});
  parts.push_back({format_bytes(peak > 0 ? peak : record.host_peak_bytes), 8});
  if (seconds_left) parts.push_back({format_clock(*seconds_left) + " left", 3});
  return parts;
}

std::string joined(const std::vector<Part>& parts) {
  std::string text;
  for (const Part& part : parts) text += (text.empty() ? "" : "  ") + part.text;
  return text;
}

void write_to(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(descriptor, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return;  // the reader has gone: no reason to end a run
    text.remove_prefix(static_cast<size_t>(wrote));
  }
}

int width_of(int descriptor) {
  winsize size{};
  const bool is_known = ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : 80;
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

ProgressOptions progress_options_for(int descriptor) {
  return {.mode = ::isatty(descriptor) == 1 ? ProgressMode::terminal : ProgressMode::lines,
          .width = [descriptor] { return width_of(descriptor); },
          .clock = steady_seconds,
          .write = [descriptor](std::string_view text) { write_to(descriptor, text); }};
}

ProgressLine::ProgressLine(ProgressOptions options)
    : options_(std::move(options)), last_step_(options_.first_step) {
  check(options_.steps_per_print > 0, "progress: steps_per_print is {}, expected 1 or more",
        options_.steps_per_print);
  if (!options_.clock) options_.clock = steady_seconds;
  if (!options_.write) options_.write = [](std::string_view text) { write_to(2, text); };
  last_time_ = options_.clock();
}

void ProgressLine::step(const StepRecord& record) {
  if (options_.mode == ProgressMode::silent) return;
  measure(record.step);
  record_ = record;
  has_record_ = true;
  const bool is_due = record.step % options_.steps_per_print == 0 || is_last(record.step);
  if (options_.mode == ProgressMode::lines) {
    if (is_due || record.eval_loss) print_line(record);
    return;
  }
  if (is_due && record.phases) log(phases_text(record));
  const bool is_early = is_drawn_ && last_time_ - drawn_time_ < kSecondsBetweenDrawings;
  if (!is_early || is_last(record.step)) draw();
}

void ProgressLine::log(std::string_view text) {
  if (options_.mode == ProgressMode::silent) return;
  const bool was_drawn = is_drawn_;
  clear();
  options_.write(fmt::format("{}\n", text));
  if (was_drawn) draw();
}

void ProgressLine::clear() {
  if (is_drawn_) options_.write(kWipe);
  is_drawn_ = false;
}

void ProgressLine::measure(int64_t step) {
  const double now = options_.clock();
  if (step > last_step_) {
    const double seconds = (now - last_time_) / static_cast<double>(step - last_step_);
    smoothed_ += kNewest * (seconds - smoothed_);
    weight_ += kNewest * (1 - weight_);
  }
  last_step_ = step;
  last_time_ = now;
}

std::optional<double> ProgressLine::seconds_left(int64_t step) const {
  if (options_.num_steps <= 0 || weight_ == 0) return std::nullopt;
  return smoothed_ / weight_ * static_cast<double>(std::max<int64_t>(0, options_.num_steps - step));
}

bool ProgressLine::is_last(int64_t step) const { return step == options_.num_steps; }

void ProgressLine::draw() {
  if (!has_record_) return;
  // The last column stays free: some terminals begin a new line when it is filled.
  const int width = std::max(1, options_.width() - 1);
  const std::string text =
      progress_text(record_, options_.num_steps, seconds_left(record_.step), width);
  options_.write(fmt::format("\r{}\x1b[K", text));
  drawn_time_ = last_time_;
  is_drawn_ = true;
}

void ProgressLine::print_line(const StepRecord& record) {
  constexpr int kAnyWidth = 1 << 20;
  std::string text =
      progress_text(record, options_.num_steps, seconds_left(record.step), kAnyWidth) + "\n";
  if (record.phases) text += phases_text(record) + "\n";
  options_.write(text);
}

std::string progress_text(const StepRecord& record, int64_t num_steps,
                          std::optional<double> seconds_left, int width) {
  std::vector<Part> parts = parts_of(record, num_steps, seconds_left);
  std::string text = joined(parts);
  while (static_cast<int>(text.size()) > width && parts.size() > 1) {
    parts.erase(std::max_element(parts.begin(), parts.end(),
                                 [](const Part& a, const Part& b) { return a.rank < b.rank; }));
    text = joined(parts);
  }
  return text.substr(0, static_cast<size_t>(std::max(0, width)));
}

std::string phases_text(const StepRecord& record) {
  if (!record.phases) return {};
  const PhaseTimes& phases = *record.phases;
  return fmt::format(
      "step {} took {}: data {}, forward {}, backward {}, optimizer {}, exposed communication {} "
      "of {}",
      record.step, format_seconds(record.step_s), format_seconds(phases.data_s),
      format_seconds(phases.forward_s), format_seconds(phases.backward_s),
      format_seconds(phases.optimizer_s), format_seconds(record.exposed_comm_s),
      format_seconds(record.comm_s));
}

}  // namespace fullshard::report
