// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/communicator.h"

#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include <atomic>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/backend.h"

namespace fullshard {

struct Communicator::State {
  std::shared_ptr<comm::Backend> backend;
  std::shared_ptr<Recorder> recorder;
  std::string group;
  std::atomic<uint64_t> sequence{0};
};

namespace {

// Tells the recorder when a collective has ended and how long its caller stood still for it. A call
// whose wait throws stays in flight: that is its last act.
class RecordedWork : public Work::Pending {
 public:
  RecordedWork(Work work, std::shared_ptr<Recorder> recorder, uint64_t ticket)
      : work_(std::move(work)), recorder_(std::move(recorder)), ticket_(ticket) {}

  void wait() override {
    if (!work_.is_pending()) return;
    auto times = work_.times();
    timed([this] { work_.wait(); });
    recorder_->finish(ticket_, waited_, std::move(times));
  }
  void wait_for_result() override {
    timed([this] { work_.wait_for_result(); });
  }
  void advance() override {
    const c10::NoGradGuard no_grad;
    work_.advance();
  }
  std::shared_ptr<const comm::CallTimes> times() const override { return work_.times(); }

 private:
  template <class Act>
  void timed(const Act& act) {
    const c10::NoGradGuard no_grad;
    const double begin = recorder_->now();
    act();
    waited_ += recorder_->now() - begin;
  }

  Work work_;
  std::shared_ptr<Recorder> recorder_;
  uint64_t ticket_;
  double waited_ = 0;
};

std::string shape_of(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<int64_t>(tensor.element_size());
}

void check_buffer(const at::Tensor& tensor, std::string_view what) {
  check(tensor.defined(), "{} is an undefined tensor; give it memory first", what);
  check(tensor.layout() == at::kStrided, "{} is a sparse tensor, expected a dense one", what);
}

at::Tensor as_line(const at::Tensor& tensor, std::string_view what) {
  check_buffer(tensor, what);
  check(tensor.is_contiguous(), "{} of shape {} is not contiguous; pass a contiguous tensor", what,
        shape_of(tensor));
  return tensor.dim() == 1 ? tensor : tensor.view({tensor.numel()});
}

// One row per receiver, each contiguous; rows may be a window of a larger buffer.
at::Tensor as_rows(const at::Tensor& full, int64_t num_rows, int64_t row_numel,
                   std::string_view what, std::string_view whose = "the shard's ") {
  check_buffer(full, what);
  if (full.dim() == 2 && full.size(0) == num_rows && full.size(1) == row_numel) {
    check(full.size(1) <= 1 || full.stride(1) == 1,
          "{} of shape {} has rows with stride {}, expected contiguous rows", what, shape_of(full),
          full.stride(1));
    check(num_rows <= 1 || row_numel == 0 || full.stride(0) >= row_numel,
          "{} of shape {} has overlapping rows (stride {}); give each row its own memory", what,
          shape_of(full), full.stride(0));
    return full;
  }
  check(full.dim() == 1 && full.numel() == num_rows * row_numel,
        "{} has shape {}, expected [{}] or [{}, {}]: {} rows of {}{} elements", what,
        shape_of(full), num_rows * row_numel, num_rows, row_numel, num_rows, whose, row_numel);
  check(full.is_contiguous(), "{} of shape {} is not contiguous; pass a contiguous tensor", what,
        shape_of(full));
  return full.view({num_rows, row_numel});
}

void check_same_device(const at::Tensor& a, const at::Tensor& b, std::string_view what) {
  check(a.device() == b.device(), "{}: full is on {}, shard on {}; put both on one device", what,
        a.device().str(), b.device().str());
}

void check_reducible(const at::Tensor& full, const at::Tensor& shard, std::string_view what) {
  const auto in = full.scalar_type();
  const auto out = shard.scalar_type();
  const bool floating =
      in == at::kFloat || in == at::kBFloat16 || in == at::kHalf || in == at::kDouble;
  check(floating || in == at::kLong,
        "{}: dtype {} cannot be reduced; use float32, bfloat16, float16, float64 or int64", what,
        c10::toString(in));
  const bool floating_out =
      out == at::kFloat || out == at::kBFloat16 || out == at::kHalf || out == at::kDouble;
  check(in == out || (floating && floating_out),
        "{}: full is {}, shard is {}; both must be floating dtypes or the same", what,
        c10::toString(in), c10::toString(out));
}

// What a ring carries per rank: W-1 of W parts to reduce or gather, and the same again among the
// replicas of a slice when fewer slices than ranks are made.
int64_t ring_volume(int64_t bytes, int64_t ranks, int64_t replicas) {
  return bytes * (ranks - 1 + replicas - 1) / ranks;
}

}  // namespace

Communicator::Communicator(std::shared_ptr<comm::Backend> backend,
                           std::shared_ptr<Recorder> recorder, std::string group)
    : state_(std::make_shared<State>()) {
  state_->backend = std::move(backend);
  state_->recorder = std::move(recorder);
  state_->group = std::move(group);
}

int Communicator::rank() const { return state_->backend->rank(); }
int Communicator::size() const { return state_->backend->size(); }
const std::string& Communicator::group() const { return state_->group; }
std::string_view Communicator::backend_name() const { return state_->backend->name(); }
Recorder& Communicator::recorder() const { return *state_->recorder; }

Communicator Communicator::limited_by(TimeLimit limit) const {
  Communicator limited = *this;
  limited.limit_ = limit;
  return limited;
}

template <class Start>
Work Communicator::issue(Operation operation, int64_t bytes, int64_t moved, std::string_view unit,
                         const Start& start) const {
  const c10::NoGradGuard no_grad;
  const comm::Call call{++state_->sequence, operation, state_->group, unit, bytes, limit_};
  const uint64_t ticket = state_->recorder->issue({.sequence = call.sequence,
                                                   .operation = operation,
                                                   .group = state_->group,
                                                   .unit = std::string(unit),
                                                   .bytes = bytes,
                                                   .moved = moved});
  Work work = start(*state_->backend, call);
  if (!work.is_pending()) {
    state_->recorder->finish(ticket, 0);
    return work;
  }
  return Work(std::make_unique<RecordedWork>(std::move(work), state_->recorder, ticket));
}

Work Communicator::all_gather(const at::Tensor& full, const at::Tensor& shard,
                              std::string_view unit) const {
  const at::Tensor line = as_line(shard, "all_gather: shard");
  const at::Tensor rows = as_rows(full, size(), line.numel(), "all_gather: full");
  check(full.scalar_type() == shard.scalar_type(),
        "all_gather: full is {}, shard is {}; a gather moves bits, so the dtypes must agree",
        c10::toString(full.scalar_type()), c10::toString(shard.scalar_type()));
  check_same_device(full, shard, "all_gather");
  const int64_t bytes = bytes_of(rows);
  return issue(Operation::all_gather, bytes, ring_volume(bytes, size(), 1), unit,
               [&](comm::Backend& backend, const comm::Call& call) {
                 return backend.all_gather(call, rows, line);
               });
}

Work Communicator::all_to_all(const at::Tensor& received, const at::Tensor& sent,
                              std::string_view unit) const {
  check_buffer(received, "all_to_all: received");
  const int64_t row_numel = received.numel() / size();
  const at::Tensor to = as_rows(received, size(), row_numel, "all_to_all: received", "");
  const at::Tensor from = as_rows(sent, size(), row_numel, "all_to_all: sent", "");
  check(received.scalar_type() == sent.scalar_type(),
        "all_to_all: received is {}, sent is {}; it moves bits, so the dtypes must agree",
        c10::toString(received.scalar_type()), c10::toString(sent.scalar_type()));
  check(received.device() == sent.device(),
        "all_to_all: received is on {}, sent on {}; put both on one device",
        received.device().str(), sent.device().str());
  const int64_t bytes = bytes_of(to);
  return issue(Operation::all_to_all, bytes, ring_volume(bytes, size(), 1), unit,
               [&](comm::Backend& backend, const comm::Call& call) {
                 return backend.all_to_all(call, to, from);
               });
}

Work Communicator::reduce_scatter(const at::Tensor& shard, const at::Tensor& full,
                                  const ReduceOptions& options, std::string_view unit) const {
  ReduceOptions chosen = options;
  if (chosen.slices == 0) chosen.slices = size();
  check(chosen.slices > 0 && size() % chosen.slices == 0,
        "reduce_scatter: slices is {}, expected a divisor of the {} ranks of group {}",
        chosen.slices, size(), group());
  const at::Tensor line = as_line(shard, "reduce_scatter: shard");
  const at::Tensor rows = as_rows(full, chosen.slices, line.numel(), "reduce_scatter: full");
  check_reducible(full, shard, "reduce_scatter");
  check_same_device(full, shard, "reduce_scatter");
  const int64_t bytes = bytes_of(rows);
  return issue(Operation::reduce_scatter, bytes, ring_volume(bytes, size(), size() / chosen.slices),
               unit, [&](comm::Backend& backend, const comm::Call& call) {
                 return backend.reduce_scatter(call, line, rows, chosen);
               });
}

Work Communicator::all_reduce(const at::Tensor& tensor, ReduceOp op, std::string_view unit) const {
  const at::Tensor line = as_line(tensor, "all_reduce: tensor");
  check_reducible(tensor, tensor, "all_reduce");
  const at::Tensor rows = line.view({1, line.numel()});
  const int64_t bytes = bytes_of(line);
  return issue(Operation::all_reduce, bytes, ring_volume(bytes, size(), size()), unit,
               [&](comm::Backend& backend, const comm::Call& call) {
                 return backend.reduce_scatter(call, line, rows, {.op = op, .slices = 1});
               });
}

Work Communicator::broadcast(const at::Tensor& tensor, int root, std::string_view unit) const {
  check(root >= 0 && root < size(), "broadcast: root is {}, expected a rank of group {}: 0 to {}",
        root, group(), size() - 1);
  const at::Tensor line = as_line(tensor, "broadcast: tensor");
  const int64_t bytes = bytes_of(line);
  return issue(Operation::broadcast, bytes, ring_volume(bytes, size(), 1), unit,
               [&](comm::Backend& backend, const comm::Call& call) {
                 return backend.broadcast(call, line, root);
               });
}

void Communicator::barrier(std::string_view unit) const {
  const comm::Call call{++state_->sequence, Operation::barrier, state_->group, unit, 0, limit_};
  Recorder& recorder = *state_->recorder;
  const uint64_t ticket = recorder.issue({.sequence = call.sequence,
                                          .operation = Operation::barrier,
                                          .group = state_->group,
                                          .unit = std::string(unit)});
  const double begin = recorder.now();
  state_->backend->barrier(call);
  recorder.finish(ticket, recorder.now() - begin);
}

void Communicator::warm_up(int64_t bytes) const {
  const c10::NoGradGuard no_grad;
  const comm::Call call{
      ++state_->sequence, Operation::barrier, state_->group, "warm-up", bytes, limit_};
  state_->backend->warm_up(call, bytes);
}

at::Tensor Communicator::allocate(int64_t numel, at::ScalarType dtype) const {
  check(numel >= 0, "allocate: {} elements asked for, expected zero or more", numel);
  return state_->backend->allocate(numel, dtype);
}

bool Communicator::shares_memory() const { return state_->backend->shares_memory(); }

at::Tensor Communicator::allocate_common(int64_t numel, at::ScalarType dtype) const {
  check(numel >= 0, "allocate_common: {} elements asked for, expected zero or more", numel);
  return state_->backend->allocate_common(numel, dtype);
}

std::shared_ptr<SharedCounters> Communicator::make_counters(int slots) const {
  check(slots > 0, "make_counters: {} slots asked for, expected at least one", slots);
  return state_->backend->make_counters(slots);
}

}  // namespace fullshard
