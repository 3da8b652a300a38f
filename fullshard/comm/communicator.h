// SPDX-License-Identifier: Apache-2.0
// How ranks talk. A Communicator is a value handle over one backend and one group of ranks; all
// ranks of the group make the same calls in the same order, and are told so by name when they do
// not. Calls come from one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/comm/recorder.h"
#include "fullshard/comm/timeouts.h"

namespace fullshard::comm {
class Backend;
struct CallTimes;
}  // namespace fullshard::comm

namespace fullshard {

class SharedCounters;

enum class ReduceOp { sum, average, max, min };

// A collective that was issued. Its buffers belong to it until wait() returns; wait() may do the
// work itself (shm), so every Work must be waited for, in any order. Waiting twice does nothing.
class Work {
 public:
  class Pending {
   public:
    virtual ~Pending() = default;
    virtual void wait() = 0;
    // May be called before wait(), any number of times.
    virtual void wait_for_result() { wait(); }
    virtual void advance() {}
    // Of a call that an accelerator carries out; the host only issues it.
    virtual std::shared_ptr<const comm::CallTimes> times() const { return nullptr; }
  };

  Work() = default;  // already done
  explicit Work(std::unique_ptr<Pending> pending) : pending_(std::move(pending)) {}

  bool is_pending() const { return pending_ != nullptr; }
  // Does what has become possible, without waiting.
  void advance() {
    if (pending_) pending_->advance();
  }
  // The result is there; peers may still read the input, which belongs to the call until wait().
  void wait_for_result() {
    if (pending_) pending_->wait_for_result();
  }
  std::shared_ptr<const comm::CallTimes> times() const {
    return pending_ ? pending_->times() : nullptr;
  }
  void wait() {
    if (auto pending = std::move(pending_)) pending->wait();
  }

 private:
  std::unique_ptr<Pending> pending_;
};

struct ReduceOptions {
  ReduceOp op = ReduceOp::average;
  // The input is cut into this many equal slices; rank r receives slice r % slices, summed over ALL
  // ranks. 0 means one slice per rank; 1 is an all-reduce. Must divide the number of ranks.
  int slices = 0;
  // Add the result to what the output holds instead of overwriting it.
  bool accumulate = false;
  // A backend that makes the result piece by piece shows each range of the output while it is still
  // in the cache: ascending, on the thread that advances or waits. Others never call it.
  std::function<void(int64_t begin, int64_t end)> on_result = {};
};

class Communicator {
 public:
  Communicator(std::shared_ptr<comm::Backend> backend, std::shared_ptr<Recorder> recorder,
               std::string group);

  int rank() const;
  int size() const;
  const std::string& group() const;
  std::string_view backend_name() const;
  Recorder& recorder() const;

  // The same group and sequence, whose calls wait for late ranks as long as `limit` says. A fresh
  // handle keeps the step's.
  Communicator limited_by(TimeLimit limit) const;

  // `full` holds one row per rank: either a 1-D tensor of size() · shard.numel() elements, or a 2-D
  // one of size() rows whose rows are contiguous (a window of a larger buffer). `shard` may be this
  // rank's own row of `full`. Any dtype; bits are moved, not interpreted.
  Work all_gather(const at::Tensor& full, const at::Tensor& shard,
                  std::string_view unit = {}) const;

  // `full` as above with options.slices rows. fp32, bf16, fp16, fp64, int64; 16-bit inputs are
  // summed in fp32. `shard` may have another floating dtype than `full`, and may be this rank's own
  // row of `full`. Sums run over ascending ranks, host by host; average then multiplies once by
  // float(1 / size): the result does not depend on timing, slices or backend.
  Work reduce_scatter(const at::Tensor& shard, const at::Tensor& full,
                      const ReduceOptions& options = {}, std::string_view unit = {}) const;

  // Both hold one row per rank, as `full` above: row r of `sent` goes to rank r, row r of
  // `received` comes from rank r. Any dtype, bits are moved. They do not overlap.
  Work all_to_all(const at::Tensor& received, const at::Tensor& sent,
                  std::string_view unit = {}) const;

  // In place; the same expression as reduce_scatter.
  Work all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum,
                  std::string_view unit = {}) const;
  Work broadcast(const at::Tensor& tensor, int root, std::string_view unit = {}) const;
  void barrier(std::string_view unit = {}) const;

  // Makes now what calls over device tensors of up to `bytes` would otherwise make at the first of
  // them, when memory may be full: connections and buffers. Collective; not recorded.
  void warm_up(int64_t bytes) const;

  // Uninitialised 1-D tensor in host memory that the backend moves without copying. Ordinary
  // tensors work everywhere too, at the price of a staging copy. Freed with the last reference.
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) const;

  // True when ranks of the group can look at the same bytes (shm on CPU).
  bool shares_memory() const;
  // The same zeroed bytes for every rank of the group; collective in order, but nobody waits.
  at::Tensor allocate_common(int64_t numel, at::ScalarType dtype) const;
  // `slots` rows of monotonic counters, one counter per rank in each; all zero at first.
  std::shared_ptr<SharedCounters> make_counters(int slots) const;

 private:
  // Shared by all copies of the handle, so that they count one sequence.
  struct State;

  template <class Start>
  Work issue(Operation operation, int64_t bytes, int64_t moved, std::string_view unit,
             const Start& start) const;

  std::shared_ptr<State> state_;
  TimeLimit limit_ = TimeLimit::step;
};

// Monotonic counters in memory that all ranks of a group see: the cheapest way to say "I am there".
// Only where Communicator::shares_memory().
class SharedCounters {
 public:
  virtual ~SharedCounters() = default;
  // Sets this rank's counter of the slot; never lowers it. Releases what was written before.
  virtual void publish(int slot, uint64_t value) = 0;
  // Returns when every rank's counter has reached value. A rank that is gone or late beyond
  // the timeout is named together with `what` and `unit`.
  virtual void wait_for_all(int slot, uint64_t value, std::string_view what,
                            std::string_view unit) = 0;
  virtual uint64_t value(int slot, int rank) const = 0;
};

}  // namespace fullshard
