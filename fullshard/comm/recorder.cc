// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "fullshard/comm/call_times.h"

namespace fullshard {
namespace {

constexpr size_t kUsualName = 48;  // bytes of a unit's name

double steady_seconds() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

// `mark` was passed at `seconds`.
void place(Record& record, const comm::CallTimes& times, const memory::RecordedEvent& mark,
           double seconds) {
  const auto time_of = [&](const memory::RecordedEvent& event) {
    return seconds - event.seconds_until(mark);
  };
  record.began = time_of(times.began);
  record.ended = time_of(*times.ended);
  record.needed = time_of(*times.needed);
}

}  // namespace

std::string_view name_of(Operation operation) {
  static constexpr std::array<std::string_view, kNumOperations> kNames = {
      "all_gather", "reduce_scatter", "all_reduce", "broadcast", "barrier", "share", "all_to_all"};
  return kNames[static_cast<size_t>(operation)];
}

Recorder::Recorder(int rank, size_t keep)
    : rank_(rank), start_(steady_seconds()), ring_(std::max<size_t>(keep, 1)) {
  for (Record& record : ring_) {
    record.group.reserve(kUsualName);
    record.unit.reserve(kUsualName);
  }
}

uint64_t Recorder::first_ticket() const {
  return next_ticket_ > ring_.size() ? next_ticket_ - ring_.size() : 1;
}

uint64_t Recorder::issue(const Record& record) {
  const double time = now();
  const std::lock_guard lock(mutex_);
  OperationTotals& totals = totals_[static_cast<size_t>(record.operation)];
  ++totals.calls;
  totals.bytes += record.bytes;
  totals.moved += record.moved;
  totals.largest = std::max(totals.largest, record.bytes);
  ++in_flight_;
  Record& kept = ring_[(next_ticket_ - 1) % ring_.size()];
  kept = record;  // into the strings that are there
  kept.rank = rank_;
  kept.issued = time;
  kept.finished = 0;
  kept.began = kept.ended = kept.needed = 0;
  return next_ticket_++;
}

void Recorder::finish(uint64_t ticket, double waited,
                      std::shared_ptr<const comm::CallTimes> times) {
  const double time = now();
  const std::lock_guard lock(mutex_);
  --in_flight_;
  // An old record may have been dropped, and then its operation's waiting time is not counted.
  if (ticket < first_ticket()) return;
  Record& record = ring_[(ticket - 1) % ring_.size()];
  record.finished = time;
  if (times) {
    unsettled_.push_back({ticket, std::move(times)});
    if (unsettled_.size() > ring_.size()) unsettled_.erase(unsettled_.begin());
  } else {
    totals_[static_cast<size_t>(record.operation)].waited += waited;
  }
}

void Recorder::settle() {
  std::shared_ptr<const comm::CallTimes> oldest;
  {
    const std::lock_guard lock(mutex_);
    if (unsettled_.empty()) return;
    oldest = unsettled_.front().times;
  }
  const auto mark =
      memory::RecordedEvent::of_caller(oldest->began.device(), comm::CallTimes::kTimed);
  mark.wait();
  settle(mark);
}

// The streams have a clock of their own, which is read off against a mark of now.
void Recorder::settle(const memory::RecordedEvent& mark) {
  const double time = now();
  const std::lock_guard lock(mutex_);
  std::erase_if(unsettled_, [&](const Unsettled& call) {
    if (!call.times->have_passed()) return false;
    if (call.ticket < first_ticket()) return true;
    Record& record = ring_[(call.ticket - 1) % ring_.size()];
    place(record, *call.times, mark, time);
    totals_[static_cast<size_t>(record.operation)].waited +=
        std::max(0.0, record.ended - record.needed);
    return true;
  });
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
  result.reserve(next_ticket_ - first_ticket());
  for (uint64_t ticket = first_ticket(); ticket < next_ticket_; ++ticket) {
    result.push_back(ring_[(ticket - 1) % ring_.size()]);
  }
  return result;
}

double Recorder::in_flight_since(double start) const {
  const std::lock_guard lock(mutex_);
  uint64_t first = next_ticket_;
  while (first > first_ticket() && ring_[(first - 2) % ring_.size()].issued >= start) --first;
  double sum = 0, end = start;  // records lie in the order of their issue
  for (uint64_t ticket = first; ticket < next_ticket_; ++ticket) {
    const Record& record = ring_[(ticket - 1) % ring_.size()];
    const double from = record.is_on_device() ? record.began : record.issued;
    const double to = record.is_on_device() ? record.ended : record.finished;
    sum += std::max(0.0, to - std::max(from, end));
    end = std::max(end, to);
  }
  return sum;
}

std::string Recorder::last_act() const {
  const std::lock_guard lock(mutex_);
  if (next_ticket_ == 1) return "none yet";
  const Record& record = ring_[(next_ticket_ - 2) % ring_.size()];
  return fmt::format("{}{} (group {}, sequence {}), {}", name_of(record.operation),
                     record.unit.empty() ? "" : fmt::format(" of {}", record.unit), record.group,
                     record.sequence, record.finished > 0 ? "finished" : "in flight");
}

void Recorder::reset_totals() {
  const std::lock_guard lock(mutex_);
  totals_ = {};
}

double Recorder::now() const { return steady_seconds() - start_; }

}  // namespace fullshard
