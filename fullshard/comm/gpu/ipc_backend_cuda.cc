// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/gpu/device_sum.h"
#include "fullshard/comm/gpu/ipc_backend.h"
#include "fullshard/comm/gpu/ipc_meeting.h"
#include "fullshard/comm/gpu/ipc_peers.h"
#include "fullshard/comm/gpu/stream_watch.h"
#include "fullshard/comm/stream_order.h"
#include "fullshard/tensor/kernel_launch.h"

namespace fullshard::comm {
namespace {

using Clock = std::chrono::steady_clock;
// How long a rank that ends by an error waits for peers that may be gone.
constexpr std::chrono::seconds kGoneFor{2};

class IpcBackend : public Backend {
 public:
  IpcBackend(std::shared_ptr<Backend> host, std::unique_ptr<IpcPeers> peers, at::Device device,
             std::shared_ptr<StreamWatch> watch)
      : host_(std::move(host)),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())),
        drain_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())),
        link_(std::move(watch), {.name = "CUDA IPC",
                                 .peers = host_->make_link_peers(),
                                 .let_go = [] { std::_Exit(EXIT_FAILURE); }}),
        peers_(std::move(peers)),
        meeting_(*host_) {}
  // Peers may still read what this rank lent them.
  ~IpcBackend() override {
    const auto end = Clock::now() + kGoneFor;
    while (cudaStreamQuery(drain_) == cudaErrorNotReady &&
           (std::uncaught_exceptions() == 0 || Clock::now() < end)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  IpcBackend(const IpcBackend&) = delete;
  IpcBackend& operator=(const IpcBackend&) = delete;

  std::string_view name() const override { return host_->name(); }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  Work all_gather(const Call& call, const at::Tensor& rows, const at::Tensor& shard) override {
    if (shard.numel() == 0) return Work();
    auto begun = link_.begin(call);
    const StreamOrder order(stream_);
    const auto lent = meet(call, shard, 0);
    for (int other = 0; other < size(); ++other) {
      copy(rows.select(0, other).data_ptr(), lent[static_cast<size_t>(other)], shard.nbytes());
    }
    const auto drained = part(call);
    return watched(std::move(begun), order, {rows, shard}, drained);
  }

  Work reduce_scatter(const Call& call, const at::Tensor& shard, const at::Tensor& rows,
                      const ReduceOptions& options) override {
    check(rows.scalar_type() != at::kLong || options.op != ReduceOp::average,
          "reduce_scatter: int64 has no average; ask for the sum and divide it");
    if (shard.numel() == 0) return Work();
    auto begun = link_.begin(call);
    const StreamOrder order(stream_);
    const auto row_bytes = rows.stride(0) * static_cast<int64_t>(rows.element_size());
    auto lent = meet(call, rows, row_bytes);
    // Others read the row that the result may overwrite, unless each rank reads a row of its own.
    const bool is_read_alone = options.slices == size();
    const auto result = is_read_alone ? shard : at::empty_like(shard);
    const RowSum sum{.output = result.mutable_data_ptr(),
                     .output_dtype = result.scalar_type(),
                     .rows = rows_at(lent, rank() % options.slices),
                     .rows_dtype = rows.scalar_type(),
                     .numel = shard.numel(),
                     .op = options.op,
                     .divisor = options.op == ReduceOp::average ? size() : 1,
                     .addend = options.accumulate ? shard.const_data_ptr() : nullptr};
    const tensor::KernelLaunch launch("ordered_sum", stream_);
    check(device_sum(sum, launch.stream()), "reduce_scatter: {} cannot be summed into {}",
          c10::toString(rows.scalar_type()), c10::toString(shard.scalar_type()));
    launch.check_launched();
    const auto drained = part(call);
    if (!is_read_alone) {
      drained.hold(stream_);
      copy(shard.mutable_data_ptr(), result.const_data_ptr(), shard.nbytes());
    }
    return watched(std::move(begun), order, {rows, shard, result}, drained);
  }

  Work all_to_all(const Call& call, const at::Tensor& received, const at::Tensor& sent) override {
    if (sent.numel() == 0) return Work();
    auto begun = link_.begin(call);
    const StreamOrder order(stream_);
    const auto element = static_cast<int64_t>(sent.element_size());
    auto lent = meet(call, sent, sent.stride(0) * element);
    const auto& rows = rows_at(lent, rank());
    for (int other = 0; other < size(); ++other) {
      copy(received.select(0, other).data_ptr(), rows[static_cast<size_t>(other)],
           static_cast<size_t>(received.size(1) * element));
    }
    const auto drained = part(call);
    return watched(std::move(begun), order, {received, sent}, drained);
  }

  Work broadcast(const Call& call, const at::Tensor& tensor, int root) override {
    if (tensor.numel() == 0) return Work();
    auto begun = link_.begin(call);
    const StreamOrder order(stream_);
    const auto lent = meet(call, tensor, 0);
    if (rank() != root) {
      copy(tensor.mutable_data_ptr(), lent[static_cast<size_t>(root)], tensor.nbytes());
    }
    const auto drained = part(call);
    return watched(std::move(begun), order, {tensor}, drained);
  }

  // Never called: barriers belong to the host.
  void barrier(const Call& call) override { host_->barrier(call); }
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override {
    return host_->allocate(numel, dtype);
  }

 private:
  // Where everyone's tensor can be read, from now on in the order of the stream.
  std::vector<const void*> meet(const Call& call, const at::Tensor& own, int64_t row_bytes) {
    ++count_;
    check_cuda(cudaEventRecord(own_of(peers_->ready).of(count_), stream_), "marking a stream");
    const auto offers = meeting_.meet(call, {.operation = call.operation,
                                             .bytes = call.bytes,
                                             .row_bytes = row_bytes,
                                             .place = ipc_place_of(own)});
    row_bytes_.clear();
    std::vector<const void*> lent;
    for (int other = 0; other < size(); ++other) {
      const auto index = static_cast<size_t>(other);
      row_bytes_.push_back(offers[index].row_bytes);
      if (other == rank()) {
        lent.push_back(own.const_data_ptr());
        continue;
      }
      lent.push_back(memory_.open(offers[index].place));
      check_cuda(cudaStreamWaitEvent(stream_, peers_->ready[index].of(count_)),
                 "waiting for a peer");
    }
    return lent;
  }

  std::vector<const void*>& rows_at(std::vector<const void*>& lent, int64_t row) const {
    for (size_t i = 0; i < lent.size(); ++i) {
      lent[i] = static_cast<const char*>(lent[i]) + row * row_bytes_[i];
    }
    return lent;
  }

  void copy(void* to, const void* from, size_t bytes) {
    if (to == from) return;
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "copying");
  }

  // Happens when everyone has read what was lent.
  memory::RecordedEvent part(const Call& call) {
    check_cuda(cudaEventRecord(own_of(peers_->done).of(count_), stream_), "marking a stream");
    meeting_.part(call);
    for (const IpcEvents& done : peers_->done) {
      check_cuda(cudaStreamWaitEvent(drain_, done.of(count_)), "waiting for a peer");
    }
    return memory::RecordedEvent(drain_);
  }

  Work watched(LinkCall call, const StreamOrder& order, std::vector<at::Tensor> used,
               const memory::RecordedEvent& drained) {
    link_.end(std::move(call), [drained] { return drained.has_passed(); });
    return StreamOrder::behind(order.end(), std::move(used), drained);
  }

  IpcEvents& own_of(std::vector<IpcEvents>& all) { return all[static_cast<size_t>(rank())]; }

  std::shared_ptr<Backend> host_;
  c10::cuda::CUDAStream stream_, drain_;
  // Ends last: what follows may stand still when it is given up after a peer has died.
  WatchedLink link_;
  std::unique_ptr<IpcPeers> peers_;
  IpcMeeting meeting_;
  IpcMemory memory_;
  uint64_t count_ = 0;
  std::vector<int64_t> row_bytes_;  // of the offers of this call
};

}  // namespace

std::shared_ptr<Backend> make_ipc_backend(std::shared_ptr<Backend> host, at::Device device,
                                          std::shared_ptr<StreamWatch> watch) {
  if (!host->shares_memory() || host->size() == 1 || host->size() > kMaxDeviceRows) return nullptr;
  const c10::cuda::CUDAGuard guard(device);
  auto peers = meet_ipc_peers(*host, device);
  if (!peers) return nullptr;
  return std::make_shared<IpcBackend>(std::move(host), std::move(peers), device, std::move(watch));
}

}  // namespace fullshard::comm
