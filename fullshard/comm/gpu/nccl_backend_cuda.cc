// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/call_terms.h"
#include "fullshard/comm/gpu/device_sum.h"
#include "fullshard/comm/gpu/nccl_backend.h"
#include "fullshard/comm/gpu/nccl_communicator.h"
#include "fullshard/comm/stream_order.h"
#include "fullshard/tensor/kernel_launch.h"

namespace fullshard::comm {
namespace {

ncclDataType_t nccl_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kHalf:
      return ncclFloat16;
    case at::kLong:
      return ncclInt64;
    default:
      fail("nccl: dtype {} cannot be reduced; use float32, float64, bfloat16, float16 or int64",
           c10::toString(dtype));
  }
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return ncclSum;
    case ReduceOp::average:
      return ncclAvg;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::min:
      return ncclMin;
  }
  return ncclSum;
}

size_t count_of(const at::Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }

// Rank 0 makes the identifier, the host's backend carries it.
ncclUniqueId share_identifier(Backend& host, const Call& call) {
  ncclUniqueId identifier{};
  if (host.rank() == 0) {
    const ncclResult_t result = ncclGetUniqueId(&identifier);
    check(result == ncclSuccess, "nccl: the identifier of group {} cannot be made: {}", call.group,
          ncclGetErrorString(result));
  }
  const auto bytes = host.allocate(sizeof(identifier), at::kByte);
  std::memcpy(bytes.data_ptr(), &identifier, sizeof(identifier));
  host.broadcast(call, bytes, 0).wait();
  std::memcpy(&identifier, bytes.const_data_ptr(), sizeof(identifier));
  return identifier;
}

// The calls run on a stream of their own behind what the caller has put on his; his waits for
// them when he waits. Memory is freed in the order of his stream, after that wait.
class NcclBackend : public Backend {
 public:
  NcclBackend(std::shared_ptr<Backend> host, const NcclOptions& options)
      : host_(std::move(host)),
        options_(options),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, options.device.index())),
        link_(options.watch, {.name = "nccl",
                              .find_fault = [this] { return fault(); },
                              .peers = host_->make_link_peers(),
                              .let_go = [this] { let_go(); }}) {}

  ~NcclBackend() override {
    // Peers that a failure has stopped would be waited for.
    if (std::uncaught_exceptions() > 0) options_.watch->abandon("it ended with an exception");
    const auto communicator = made();
    if (!communicator) return;
    while (options_.watch->is_sound() && cudaStreamQuery(stream_) == cudaErrorNotReady) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (options_.watch->is_sound()) communicator->finish();
  }
  NcclBackend(const NcclBackend&) = delete;
  NcclBackend& operator=(const NcclBackend&) = delete;

  std::string_view name() const override { return "nccl"; }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  Work all_gather(const Call& call, const at::Tensor& rows, const at::Tensor& shard) override {
    Started started(*this, call);
    const auto whole = rows.is_contiguous() ? rows : at::empty(rows.sizes(), rows.options());
    // Bits are moved: bytes serve every dtype.
    started.run([&](ncclComm_t handle) {
      return ncclAllGather(shard.const_data_ptr(), whole.data_ptr(), shard.nbytes(), ncclInt8,
                           handle, stream_);
    });
    if (!rows.is_contiguous()) rows.copy_(whole);
    return started.work({rows, whole, shard});
  }

  Work reduce_scatter(const Call& call, const at::Tensor& shard, const at::Tensor& rows,
                      const ReduceOptions& options) override {
    check(rows.scalar_type() != at::kLong || options.op != ReduceOp::average,
          "reduce_scatter: int64 has no average; ask for the sum and divide it");
    Started started(*this, call);
    // Sums of integers have the same bits in every order.
    if (options_.sums == DeviceSums::nccl || rows.scalar_type() == at::kLong) {
      return reduce_by_nccl(started, shard, rows, options);
    }
    Carrier carrier(started);
    exchanged_sum(carrier, shard, rows,
                  {.rank = rank(), .hosts = options_.hosts, .options = options});
    return started.work({rows, shard});
  }

  Work all_to_all(const Call& call, const at::Tensor& received, const at::Tensor& sent) override {
    Started started(*this, call);
    const auto row_bytes = sent.size(1) * static_cast<int64_t>(sent.element_size());
    std::vector<SumCarrier::Message> out, in;
    for (int peer = 0; peer < size() && row_bytes > 0; ++peer) {
      if (peer == rank()) continue;
      out.push_back({sent.select(0, peer).data_ptr(), row_bytes, peer});
      in.push_back({received.select(0, peer).data_ptr(), row_bytes, peer});
    }
    Carrier(started).exchange(out, in);
    received.select(0, rank()).copy_(sent.select(0, rank()));
    return started.work({received, sent});
  }

  Work broadcast(const Call& call, const at::Tensor& tensor, int root) override {
    Started started(*this, call);
    started.run([&](ncclComm_t handle) {
      return ncclBroadcast(tensor.const_data_ptr(), tensor.data_ptr(), tensor.nbytes(), ncclInt8,
                           root, handle, stream_);
    });
    return started.work({tensor});
  }

  // Never called: barriers belong to the host.
  void barrier(const Call&) override {}
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override {
    return at::empty({numel}, at::TensorOptions().dtype(dtype).device(stream_.device()));
  }

  void warm_up(const Call& call, int64_t bytes) override {
    const auto in_bf16 = at::TensorOptions().dtype(at::kBFloat16).device(stream_.device());
    const int64_t numel = std::max<int64_t>(bytes / 2 / size(), 1);
    const auto rows = at::zeros({size(), numel}, in_bf16);
    Call gather = call, reduce = call;
    gather.operation = Operation::all_gather;
    reduce.operation = Operation::reduce_scatter;
    all_gather(gather, rows, rows.select(0, rank())).wait();
    const auto slice = rows.select(0, rank());
    reduce_scatter(reduce, slice, rows, {.op = ReduceOp::average, .slices = size()}).wait();
  }

 private:
  // One call between its first and its last act on the stream.
  class Started {
   public:
    Started(NcclBackend& backend, const Call& call)
        : backend_(backend),
          communicator_(backend.communicator_for(call)),
          call_(backend.link_.begin(call)),
          order_(backend.stream_) {}

    // Returns when the kernels of `issue` are in the stream.
    void run(const NcclCommunicator::Issue& issue) {
      backend_.blaming(call_, [&] {
        communicator_->run(describe_call(call_.operation, call_.unit), issue,
                           [this](auto waited) { backend_.link_.look(call_, waited); });
      });
    }
    Work work(std::vector<at::Tensor> used) {
      auto times = order_.end();
      backend_.link_.end(std::move(call_), [ended = *times->ended] { return ended.has_passed(); });
      return StreamOrder::behind(std::move(times), std::move(used));
    }
    c10::cuda::CUDAStream stream() const { return backend_.stream_; }

   private:
    NcclBackend& backend_;
    std::shared_ptr<NcclCommunicator> communicator_;
    LinkCall call_;
    StreamOrder order_;
  };

  // The exchange of an ordered sum, in one stream.
  class Carrier : public SumCarrier {
   public:
    explicit Carrier(Started& started) : started_(started) {}

    void exchange(std::span<const Message> sent, std::span<const Message> received) override {
      if (sent.empty() && received.empty()) return;
      const auto stream = started_.stream();
      started_.run([&](ncclComm_t handle) {
        ncclResult_t result = ncclSuccess;
        const auto keep = [&](ncclResult_t one) {
          if (one != ncclSuccess && one != ncclInProgress) result = one;
        };
        for (const auto& one : sent) {
          keep(ncclSend(one.begin, static_cast<size_t>(one.bytes), ncclInt8, one.peer, handle,
                        stream));
        }
        for (const auto& one : received) {
          keep(ncclRecv(one.begin, static_cast<size_t>(one.bytes), ncclInt8, one.peer, handle,
                        stream));
        }
        return result;
      });
    }
    void add(const RowSum& sum) override {
      const tensor::KernelLaunch launch("ordered_sum", started_.stream());
      check(device_sum(sum, launch.stream()), "reduce_scatter: {} cannot be summed into {}",
            c10::toString(sum.rows_dtype), c10::toString(sum.output_dtype));
      launch.check_launched();
    }
    at::Tensor scratch(int64_t numel, at::ScalarType dtype) override {
      return at::empty({numel},
                       at::TensorOptions().dtype(dtype).device(started_.stream().device()));
    }
    int max_rows() const override { return kMaxDeviceRows; }

   private:
    Started& started_;
  };

  std::shared_ptr<NcclCommunicator> made() const {
    const std::lock_guard lock(mutex_);
    return communicator_;
  }
  std::string fault() const {
    const auto communicator = made();
    return communicator ? communicator->fault() : "";
  }
  void let_go() const {
    if (const auto communicator = made()) communicator->abort();
  }

  // Runs something of NCCL. If that fails, every link of this rank is let go, and the Error names
  // the rank through which it failed, if one is known.
  template <class Act>
  void blaming(const LinkCall& call, const Act& act) {
    try {
      act();
    } catch (const Error& error) {
      std::string why = error.what();
      try {
        link_.look_for_gone(call);
      } catch (const Error& better) {
        why = better.what();
      }
      options_.watch->abandon(why);
      throw Error(why);
    }
  }

  // Made by the first call: groups that nobody uses cost nothing.
  std::shared_ptr<NcclCommunicator> communicator_for(const Call& first) {
    if (auto communicator = made()) return communicator;
    Call start = first;
    start.operation = Operation::broadcast;
    start.unit = "the start of nccl";
    start.bytes = sizeof(ncclUniqueId);
    start.limit = TimeLimit::init;
    const c10::cuda::CUDAGuard guard(options_.device);
    const ncclUniqueId identifier = share_identifier(*host_, start);
    const LinkCall call = link_.begin(start);
    std::shared_ptr<NcclCommunicator> communicator;
    blaming(call, [&] {
      communicator = std::make_shared<NcclCommunicator>(
          identifier, rank(), size(), [&](auto waited) { link_.look(call, waited); });
    });
    const std::lock_guard lock(mutex_);
    return communicator_ = communicator;
  }

  // One slice for everyone, one for each rank, or in between: then all slices are reduced and the
  // own one is kept.
  Work reduce_by_nccl(Started& started, const at::Tensor& shard, const at::Tensor& rows,
                      const ReduceOptions& options) {
    const auto input = rows.contiguous();
    const bool direct = !options.accumulate && shard.scalar_type() == rows.scalar_type();
    const auto result =
        direct ? shard : at::empty({shard.numel()}, shard.options().dtype(rows.scalar_type()));
    const auto type = nccl_type(input.scalar_type());
    const auto op = nccl_op(options.op);
    if (options.slices == size()) {
      started.run([&](ncclComm_t handle) {
        return ncclReduceScatter(input.const_data_ptr(), result.data_ptr(), count_of(result), type,
                                 op, handle, stream_);
      });
    } else {
      const auto sums =
          options.slices == 1 ? result.view({1, -1}) : at::empty(input.sizes(), input.options());
      started.run([&](ncclComm_t handle) {
        return ncclAllReduce(input.const_data_ptr(), sums.data_ptr(), count_of(input), type, op,
                             handle, stream_);
      });
      if (options.slices > 1) result.copy_(sums.select(0, rank() % options.slices));
    }
    if (options.accumulate) {
      shard.add_(result);
    } else if (!direct) {
      shard.copy_(result);
    }
    return started.work({input, result, rows, shard});
  }

  std::shared_ptr<Backend> host_;
  NcclOptions options_;
  c10::cuda::CUDAStream stream_;
  mutable std::mutex mutex_;  // of the handle below, which the watch's thread asks for
  std::shared_ptr<NcclCommunicator> communicator_;
  WatchedLink link_;  // ends first: it looks at what stands above
};

}  // namespace

bool is_built_with_nccl() { return true; }

std::shared_ptr<Backend> make_nccl_backend(std::shared_ptr<Backend> host,
                                           const NcclOptions& options) {
  return std::make_shared<NcclBackend>(std::move(host), options);
}

}  // namespace fullshard::comm
