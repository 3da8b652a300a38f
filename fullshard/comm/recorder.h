// SPDX-License-Identifier: Apache-2.0
// What a rank's collectives were: the source of the counters that tests read, of the overlap report
// and of the message when ranks hang or disagree.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::comm {
struct CallTimes;
}  // namespace fullshard::comm

namespace fullshard::memory {
class RecordedEvent;
}  // namespace fullshard::memory

namespace fullshard {

// `share`: a gather that only waits (one copy per host).
enum class Operation {
  all_gather,
  reduce_scatter,
  all_reduce,
  broadcast,
  barrier,
  share,
  all_to_all
};
inline constexpr int kNumOperations = 7;

std::string_view name_of(Operation operation);

struct Record {
  int rank = 0;           // in the world
  uint64_t sequence = 0;  // of its communicator, counted from 1
  Operation operation = Operation::barrier;
  std::string group{};  // which communicator: "world", "shards", "replicas"
  std::string unit{};   // who asked, as messages name it: "unit 'blocks.2'", "gather_full"
  int64_t bytes = 0;    // of the full buffer
  int64_t moved = 0;    // what a ring would carry per rank: (N-1)/N of bytes, twice that to
                        // all-reduce; 0 for share
  double issued = 0;    // seconds since the recorder was made
  double finished = 0;  // 0 while in flight; on an accelerator, when the host had issued the wait
  // On an accelerator, once settle() knows: where the call lay on its stream, and when the caller's
  // stream came to need it. What it did between two needs is computation.
  double began = 0, ended = 0, needed = 0;
  bool is_on_device() const { return ended > 0; }
};

struct OperationTotals {
  int64_t calls = 0;
  int64_t bytes = 0;
  int64_t moved = 0;
  int64_t largest = 0;  // bytes of the largest single call
  double waited = 0;    // seconds the caller spent inside wait(), or his stream behind the call
};

// Thread-safe. One per rank; shared by all communicators of its World.
class Recorder {
 public:
  explicit Recorder(int rank, size_t keep = 4096);

  // Returns the ticket that finish() takes.
  uint64_t issue(const Record& record);
  void finish(uint64_t ticket, double waited,
              std::shared_ptr<const comm::CallTimes> times = nullptr);
  // Brings in the times of calls that an accelerator has carried out, and waits for its stream.
  void settle();
  // Without waiting, for a caller who has just waited for this mark, which knows its time.
  void settle(const memory::RecordedEvent& just_passed);

  OperationTotals totals(Operation operation) const;
  int64_t moved() const;  // of all operations
  int in_flight() const;
  // The newest records, oldest first, at most `keep` of them.
  std::vector<Record> records() const;
  // Of the kept ones that were issued since then: seconds with any in flight, overlaps counted
  // once.
  double in_flight_since(double start) const;
  std::string last_act() const;  // "all_gather of unit 'blocks.3' (sequence 17), finished"
  void reset_totals();
  double now() const;

 private:
  uint64_t first_ticket() const;  // of those that are kept

  mutable std::mutex mutex_;
  int rank_;
  double start_;
  uint64_t next_ticket_ = 1;
  int in_flight_ = 0;
  // A ring, made whole at the start: records that came one by one would each pin a piece of the
  // heap between the tensors of a step. Ticket t lies at (t - 1) % keep.
  std::vector<Record> ring_;
  std::array<OperationTotals, kNumOperations> totals_{};
  struct Unsettled {
    uint64_t ticket;
    std::shared_ptr<const comm::CallTimes> times;
  };
  std::vector<Unsettled> unsettled_;
};

}  // namespace fullshard
