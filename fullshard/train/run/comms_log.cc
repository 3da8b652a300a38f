// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/comms_log.h"

#include <fmt/format.h>

#include "fullshard/base/bytes.h"
#include "fullshard/base/printable.h"

namespace fullshard::train {
namespace {

double seconds_of_call(const Record& record) {
  return record.is_on_device() ? record.ended - record.began : record.finished - record.issued;
}

// As DeepSpeed prints them; of nothing, or in no time, none.
std::string gigabits(int64_t bytes, double seconds) {
  if (bytes == 0 || seconds <= 0) return "-";
  return fmt::format("{:.2f}", static_cast<double>(bytes) * 8e-9 / seconds);
}

constexpr std::string_view kRow = "{:<24}{:>14}{:>9}{:>20}{:>18}{:>18}{:>19}\n";

}  // namespace

CommsLog::CommsLog(const CommsLogOptions& options)
    : options_(options), operations_(options.operations.begin(), options.operations.end()) {}

bool CommsLog::is_logged(const Record& record) const {
  return options_.logs_all || operations_.contains(std::string(name_of(record.operation)));
}

std::string CommsLog::name_of_call(const Record& record) const {
  std::string name(name_of(record.operation));
  if (options_.names_callers && !record.unit.empty()) {
    name += fmt::format(" of {}", base::printable(record.unit));
  }
  return name;
}

std::vector<std::string> CommsLog::take(Recorder& recorder) {
  std::vector<std::string> lines;
  if (!options_.is_enabled) return lines;
  recorder.settle();
  // In the order of their issue; one in flight, and those behind it, wait for the next time.
  const std::vector<Record> records = recorder.records();
  int64_t num_calls = 0;
  for (int operation = 0; operation < kNumOperations; ++operation) {
    num_calls += recorder.totals(static_cast<Operation>(operation)).calls;
  }
  const bool drops = num_calls > static_cast<int64_t>(records.size());
  has_lost_ = has_lost_ || (drops && records.front().issued > counted_until_);
  for (const Record& record : records) {
    if (record.issued <= counted_until_) continue;
    if (record.finished == 0) break;
    counted_until_ = record.issued;
    if (!is_logged(record)) continue;
    const std::string name = name_of_call(record);
    const double seconds = seconds_of_call(record);
    Sum& sum = sums_[{name, record.bytes}];
    ++sum.calls;
    sum.bytes += record.bytes;
    sum.moved += record.moved;
    sum.seconds += seconds;
    if (!options_.is_verbose) continue;
    lines.push_back(fmt::format(
        "comm op: {} | time (ms): {:.3f} | msg size: {} | algbw (Gbps): {} | busbw (Gbps): {}",
        name, seconds * 1e3, format_bytes(record.bytes), gigabits(record.bytes, seconds),
        gigabits(record.moved, seconds)));
  }
  return lines;
}

std::string CommsLog::summary() const {
  if (sums_.empty()) return {};
  std::string text =
      fmt::format(fmt::runtime(kRow), "Comm. Op", "Message Size", "Count", "Total Latency(ms)",
                  "Avg Latency(ms)", "tput_avg (Gbps)", "busbw_avg (Gbps)");
  std::string last;
  for (const auto& [key, sum] : sums_) {
    const auto& [name, bytes] = key;
    if (name != last) text += name + "\n";
    last = name;
    text += fmt::format(fmt::runtime(kRow), "", format_bytes(bytes), sum.calls,
                        fmt::format("{:.2f}", sum.seconds * 1e3),
                        fmt::format("{:.3f}", sum.seconds * 1e3 / static_cast<double>(sum.calls)),
                        gigabits(sum.bytes, sum.seconds), gigabits(sum.moved, sum.seconds));
  }
  if (has_lost_) text += "(some calls are not counted: one step had more than are kept)\n";
  return text;
}

}  // namespace fullshard::train
