// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/run_totals.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fullshard/base/bytes.h"
#include "fullshard/report/records/number_text.h"

namespace fullshard::report {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

void keep_best(std::optional<BestLoss>& best, double loss, int64_t step) {
  if (std::isfinite(loss) && (!best || loss < best->loss)) best = BestLoss{loss, step};
}

// A file may claim any number; the sum then stays at the largest value.
int64_t more_tokens(int64_t sum, int64_t tokens, int64_t steps) {
  int64_t product = 0, result = 0;
  const bool is_too_much = __builtin_mul_overflow(tokens, steps, &product) ||
                           __builtin_add_overflow(sum, product, &result);
  return is_too_much ? std::numeric_limits<int64_t>::max() : result;
}

std::string losses_text(double last, const std::optional<BestLoss>& best) {
  std::string text = format_loss(last) + " last";
  if (best) text += fmt::format(", {} best (step {})", format_loss(best->loss), best->step);
  return text;
}

std::string memory_text(const RunTotals& totals) {
  const std::string host =
      fmt::format("{} of a rank's host", format_bytes(totals.host_peak_bytes()));
  if (totals.device_peak_bytes() == 0) return host;
  return fmt::format("{} of a rank's device, {}", format_bytes(totals.device_peak_bytes()), host);
}

}  // namespace

void RunTotals::count(const StepRecord& record, int64_t steps) {
  num_steps_ += steps;
  tokens_ = more_tokens(tokens_, record.tokens, steps);
  if (std::isfinite(record.step_s)) seconds_ += record.step_s * static_cast<double>(steps);
}

void RunTotals::add(const StepRecord& record) {
  const int64_t before = last_ ? last_->step : steps_before_.value_or(record.step - 1);
  const int64_t steps = std::max<int64_t>(1, record.step - before);
  if (++num_records_ == 2 && !steps_before_) count(*last_, std::min(steps, last_->step) - 1);
  count(record, steps);
  num_skipped_ += record.skipped ? 1 : 0;
  device_peak_bytes_ = std::max(device_peak_bytes_, record.device_peak_bytes);
  host_peak_bytes_ = std::max(host_peak_bytes_, record.host_peak_bytes);
  keep_best(best_, record.loss, record.step);
  if (record.eval_loss) {
    last_evaluation_ = BestLoss{*record.eval_loss, record.step};
    keep_best(best_evaluation_, *record.eval_loss, record.step);
  }
  // A value that is not a number has no place in an order.
  if (std::isfinite(record.tokens_per_s)) tokens_per_s_.add(record.tokens_per_s);
  if (record.mfu && std::isfinite(*record.mfu)) mfu_.add(*record.mfu);
  if (std::isfinite(record.step_s)) step_s_.add(record.step_s);
  last_ = record;
}

int64_t RunTotals::first_step() const {
  if (steps_before_) return *steps_before_;
  return num_records_ < 2 ? 0 : last_->step - num_steps_;
}

double RunTotals::median_tokens_per_s() const { return median(tokens_per_s_.values()); }
double RunTotals::median_step_s() const { return median(step_s_.values()); }
std::optional<double> RunTotals::median_mfu() const {
  return mfu_.values().empty() ? std::nullopt : std::optional(median(mfu_.values()));
}

std::string clock_note(const RunTotals& totals, int64_t first_step) {
  const std::string inside = format_clock(totals.seconds());
  if (first_step <= totals.first_step()) return inside + " inside steps";
  return fmt::format("since step {}; {} inside all steps", first_step, inside);
}

std::string summary_table(const RunTotals& totals, const Elapsed& elapsed,
                          const std::vector<std::pair<std::string, std::string>>& places) {
  std::vector<std::pair<std::string, std::string>> rows;
  const std::string skipped =
      totals.num_skipped() > 0 ? fmt::format(" ({} skipped)", totals.num_skipped()) : "";
  const std::string since =
      totals.first_step() > 0 ? fmt::format(" since step {}", totals.first_step()) : "";
  rows.emplace_back("steps", fmt::format("{}{}{}", totals.num_steps(), since, skipped));
  rows.emplace_back("tokens", format_count(totals.tokens()));
  rows.emplace_back("time", fmt::format("{}, {}", format_clock(elapsed.seconds),
                                        clock_note(totals, elapsed.first_step)));
  if (totals.last()) rows.emplace_back("loss", losses_text(totals.last()->loss, totals.best()));
  if (const auto evaluation = totals.last_evaluation()) {
    rows.emplace_back("evaluation", losses_text(evaluation->loss, totals.best_evaluation()));
  }
  rows.emplace_back("tokens/s", format_rate(totals.median_tokens_per_s()) + " median");
  if (const auto mfu = totals.median_mfu()) {
    rows.emplace_back("MFU", format_percent(*mfu) + " median");
  }
  rows.emplace_back("memory", memory_text(totals));
  rows.insert(rows.end(), places.begin(), places.end());
  size_t width = 0;
  for (const auto& [name, value] : rows) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, value] : rows) text += fmt::format("{:<{}}  {}\n", name, width, value);
  return text;
}

}  // namespace fullshard::report
