#include "fullshard/comm/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace fullshard {
namespace {

double steady_seconds() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

}  // namespace

std::string_view name_of(Operation operation) {
  static constexpr std::array<std::string_view, kNumOperations> kNames = {
      "all_gather", "reduce_scatter", "all_reduce", "broadcast", "barrier", "share"};
  return kNames[static_cast<size_t>(operation)];
}

Recorder::Recorder(int rank, size_t keep)
    : rank_(rank), keep_(std::max<size_t>(keep, 1)), start_(steady_seconds()) {}

uint64_t Recorder::issue(Record record) {
  record.rank = rank_;
  record.issued = now();
  record.finished = 0;
  const std::lock_guard lock(mutex_);
  OperationTotals& totals = totals_[static_cast<size_t>(record.operation)];
  ++totals.calls;
  totals.bytes += record.bytes;
  totals.moved += record.moved;
  totals.largest = std::max(totals.largest, record.bytes);
  ++in_flight_;
  records_.emplace_back(next_ticket_, std::move(record));
  if (records_.size() > keep_) records_.pop_front();
  return next_ticket_++;
}

void Recorder::finish(uint64_t ticket, double waited) {
  const double time = now();
  const std::lock_guard lock(mutex_);
  --in_flight_;
  // Tickets are consecutive, so the place in the deque follows from the first; an old record may
  // have been dropped, and then its operation's waiting time is not counted.
  if (records_.empty() || ticket < records_.front().first) return;
  Record& record = records_[ticket - records_.front().first].second;
  record.finished = time;
  totals_[static_cast<size_t>(record.operation)].waited += waited;
}

OperationTotals Recorder::totals(Operation operation) const {
  const std::lock_guard lock(mutex_);
  return totals_[static_cast<size_t>(operation)];
}

int64_t Recorder::moved() const {
  const std::lock_guard lock(mutex_);
  int64_t sum = 0;
  for (const OperationTotals& totals : totals_) sum += totals.moved;
  return sum;
}

int Recorder::in_flight() const {
  const std::lock_guard lock(mutex_);
  return in_flight_;
}

std::vector<Record> Recorder::records() const {
  const std::lock_guard lock(mutex_);
  std::vector<Record> result;
  result.reserve(records_.size());
  for (const auto& [ticket, record] : records_) result.push_back(record);
  return result;
}

std::string Recorder::last_act() const {
  const std::lock_guard lock(mutex_);
  if (records_.empty()) return "none yet";
  const Record& record = records_.back().second;
  return fmt::format("{}{} (group {}, sequence {}), {}", name_of(record.operation),
                     record.unit.empty() ? "" : fmt::format(" of unit '{}'", record.unit),
                     record.group, record.sequence, record.finished > 0 ? "finished" : "in flight");
}

void Recorder::reset_totals() {
  const std::lock_guard lock(mutex_);
  totals_ = {};
}

double Recorder::now() const { return steady_seconds() - start_; }

}  // namespace fullshard
