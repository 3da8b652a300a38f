// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/world/fake_backend.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <functional>
#include <utility>
#include <vector>

#include "fullshard/tensor/allocation_watch.h"
#include "fullshard/tensor/operator_watch.h"

namespace fullshard::comm {
namespace {

// Done at wait(), as real collectives are: a schedule that reads too early is seen.
class Later : public Work::Pending {
 public:
  Later(std::function<void()> act, std::function<void()> when_needed)
      : act_(std::move(act)), when_needed_(std::move(when_needed)) {}
  void wait() override {
    tell_once();
    const tensor::UnwatchedOperators stands_for_the_link;
    act_();
  }
  void wait_for_result() override {
    tell_once();
    Pending::wait_for_result();
  }

 private:
  void tell_once() {
    if (auto tell = std::exchange(when_needed_, nullptr)) tell();
  }

  std::function<void()> act_, when_needed_;
};

// Every other rank has always come as far as this one.
class FakeCounters : public SharedCounters {
 public:
  explicit FakeCounters(int slots) : values_(static_cast<size_t>(slots)) {}
  void publish(int slot, uint64_t value) override { values_.at(static_cast<size_t>(slot)) = value; }
  void wait_for_all(int, uint64_t, std::string_view, std::string_view) override {}
  uint64_t value(int slot, int) const override { return values_.at(static_cast<size_t>(slot)); }

 private:
  std::vector<uint64_t> values_;
};

}  // namespace

Work FakeBackend::later(const WatchedCall& call, std::function<void()> act) const {
  std::function<void()> when_needed;
  if (watch_) {
    when_needed = [watch = watch_, number = watch_->issued(call)] { watch->waited(number); };
  }
  return Work(std::make_unique<Later>(std::move(act), std::move(when_needed)));
}

Work FakeBackend::all_gather(const Call& call, const at::Tensor& rows, const at::Tensor& shard) {
  return later({call, group_, size_, !rows.is_cpu()}, [rows, shard, rank = rank_] {
    const auto row_bytes = rows.stride(0) * static_cast<int64_t>(rows.element_size());
    const auto* own = static_cast<const char*>(rows.data_ptr()) + rank * row_bytes;
    // A shard that is its own row must not be written while it is read.
    const at::Tensor source = own == shard.data_ptr() ? shard.clone() : shard;
    rows.copy_(source.expand_as(rows));
  });
}

Work FakeBackend::reduce_scatter(const Call& call, const at::Tensor& shard, const at::Tensor& rows,
                                 const ReduceOptions& options) {
  return later({call, group_, options.slices, !rows.is_cpu()},
               [shard, rows, options, rank = rank_, size = size_] {
                 const at::Tensor row = rows.select(0, rank % options.slices);
                 const at::Tensor value = options.op == ReduceOp::sum ? row.mul(size) : row;
                 if (options.accumulate) {
                   shard.add_(value);
                 } else {
                   shard.copy_(value);
                 }
               });
}

Work FakeBackend::all_to_all(const Call& call, const at::Tensor& received, const at::Tensor& sent) {
  return later({call, group_, size_, !sent.is_cpu()}, [received, sent, rank = rank_] {
    received.copy_(sent.select(0, rank).expand_as(received));
  });
}

Work FakeBackend::broadcast(const Call& call, const at::Tensor& tensor, int) {
  return later({call, group_, size_, !tensor.is_cpu()}, [tensor] {});
}

void FakeBackend::barrier(const Call&) {}

at::Tensor FakeBackend::allocate(int64_t numel, at::ScalarType dtype) {
  return at::empty({numel}, at::TensorOptions().dtype(dtype));
}

// A rank answers for its part of it.
at::Tensor FakeBackend::allocate_common(int64_t numel, at::ScalarType dtype) {
  if (const auto watch = tensor::AllocationWatch::current()) {
    const int64_t bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
    watch->change(at::kCPU, tensor::AllocationKind::bytes, bytes / size_);
  }
  const tensor::UnwatchedScope whole;
  return at::zeros({numel}, at::TensorOptions().dtype(dtype));
}

std::shared_ptr<SharedCounters> FakeBackend::make_counters(int slots) {
  return std::make_shared<FakeCounters>(slots);
}

}  // namespace fullshard::comm
