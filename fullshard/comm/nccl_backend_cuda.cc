#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <nccl.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/nccl_backend.h"
#include "fullshard/comm/stream_order.h"
#include "fullshard/comm/stream_watch.h"

namespace fullshard {
namespace {

void check_nccl(ncclResult_t result, const Call& call, const char* what) {
  check(result == ncclSuccess || result == ncclInProgress, "nccl: {} of {} in group {} failed: {}",
        what, call.unit.empty() ? "a call" : call.unit, call.group, ncclGetErrorString(result));
}

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

// The calls run on a stream of their own behind what the caller has put on his; his waits for
// them when he waits. Memory is freed in the order of his stream, after that wait.
class NcclBackend : public Backend {
 public:
  NcclBackend(ncclComm_t communicator, int rank, int size, at::Device device,
              std::chrono::milliseconds limit)
      : communicator_(communicator),
        rank_(rank),
        size_(size),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())),
        watch_(std::make_unique<StreamWatch>(own_link(), limit)) {}
  ~NcclBackend() override {
    watch_.reset();
    if (is_aborted_) return;
    // Peers that a failure has stopped would be waited for.
    std::uncaught_exceptions() > 0 ? ncclCommAbort(communicator_) : ncclCommDestroy(communicator_);
  }
  NcclBackend(const NcclBackend&) = delete;
  NcclBackend& operator=(const NcclBackend&) = delete;

  std::string_view name() const override { return "nccl"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Work all_gather(const Call& call, const at::Tensor& rows, const at::Tensor& shard) override {
    // Bits are moved: bytes serve every dtype.
    return in_one_piece(call, rows, [&](const at::Tensor& whole) {
      check_nccl(ncclAllGather(shard.const_data_ptr(), whole.data_ptr(), shard.nbytes(), ncclInt8,
                               communicator_, stream_),
                 call, "all_gather");
    });
  }

  Work reduce_scatter(const Call& call, const at::Tensor& shard, const at::Tensor& rows,
                      const ReduceOptions& options) override {
    const StreamOrder order(stream_);
    const auto input = rows.contiguous();
    const bool direct = !options.accumulate && shard.scalar_type() == rows.scalar_type();
    const auto result =
        direct ? shard : at::empty({shard.numel()}, shard.options().dtype(rows.scalar_type()));
    reduce(call, result, input, options);
    if (options.accumulate) {
      shard.add_(result);
    } else if (!direct) {
      shard.copy_(result);
    }
    return watched(call, order, {input, result, rows, shard});
  }

  Work broadcast(const Call& call, const at::Tensor& tensor, int root) override {
    const StreamOrder order(stream_);
    check_nccl(ncclBroadcast(tensor.const_data_ptr(), tensor.data_ptr(), tensor.nbytes(), ncclInt8,
                             root, communicator_, stream_),
               call, "broadcast");
    return watched(call, order, {tensor});
  }

  // Never called: barriers belong to the host.
  void barrier(const Call&) override {}
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override {
    return at::empty({numel}, at::TensorOptions().dtype(dtype).device(stream_.device()));
  }

 private:
  StreamWatch::Link own_link() {
    const auto find_fault = [this]() -> std::string {
      ncclResult_t state = ncclSuccess;
      ncclCommGetAsyncError(communicator_, &state);
      if (state == ncclSuccess || state == ncclInProgress) return "";
      return fmt::format("failed: {}", ncclGetErrorString(state));
    };
    const auto let_go = [this] {
      is_aborted_ = true;
      ncclCommAbort(communicator_);
    };
    return {"nccl", find_fault, let_go};
  }

  Work watched(const Call& call, const StreamOrder& order, std::vector<at::Tensor> used) {
    auto times = order.end();
    watch_->add(call, {times, &times->ended});
    return StreamOrder::behind(std::move(times), std::move(used));
  }

  template <class Gather>
  Work in_one_piece(const Call& call, const at::Tensor& rows, const Gather& gather) {
    const StreamOrder order(stream_);
    if (rows.is_contiguous()) {
      gather(rows);
      return watched(call, order, {rows});
    }
    const auto whole = at::empty(rows.sizes(), rows.options());
    gather(whole);
    rows.copy_(whole);
    return watched(call, order, {rows, whole});
  }

  // One slice for everyone, one for each rank, or in between: then all slices are reduced and the
  // own one is kept.
  void reduce(const Call& call, const at::Tensor& result, const at::Tensor& input,
              const ReduceOptions& options) {
    const auto type = nccl_type(input.scalar_type());
    if (options.slices == size_) {
      check_nccl(ncclReduceScatter(input.const_data_ptr(), result.data_ptr(), count_of(result),
                                   type, nccl_op(options.op), communicator_, stream_),
                 call, "reduce_scatter");
      return;
    }
    const auto sums =
        options.slices == 1 ? result.view({1, -1}) : at::empty(input.sizes(), input.options());
    check_nccl(ncclAllReduce(input.const_data_ptr(), sums.data_ptr(), count_of(input), type,
                             nccl_op(options.op), communicator_, stream_),
               call, "all_reduce");
    if (options.slices > 1) result.copy_(sums.select(0, rank_ % options.slices));
  }

  ncclComm_t communicator_;
  int rank_, size_;
  c10::cuda::CUDAStream stream_;
  std::atomic<bool> is_aborted_ = false;
  std::unique_ptr<StreamWatch> watch_;
};

// Rank 0 makes the identifier, the host's backend carries it.
ncclUniqueId share_identifier(Backend& host, const Call& call) {
  ncclUniqueId identifier;
  if (host.rank() == 0) check_nccl(ncclGetUniqueId(&identifier), call, "the identifier");
  if (host.size() == 1) return identifier;
  const auto bytes = host.allocate(sizeof(identifier), at::kByte);
  std::memcpy(bytes.data_ptr(), &identifier, sizeof(identifier));
  host.broadcast(call, bytes, 0).wait();
  std::memcpy(&identifier, bytes.const_data_ptr(), sizeof(identifier));
  return identifier;
}

}  // namespace

bool is_built_with_nccl() { return true; }

std::shared_ptr<Backend> make_nccl_backend(Backend& host, at::Device device,
                                           const std::string& group,
                                           std::chrono::milliseconds limit) {
  const c10::cuda::CUDAGuard guard(device);
  const Call call{.operation = Operation::broadcast,
                  .group = group,
                  .unit = "the start of nccl",
                  .bytes = sizeof(ncclUniqueId)};
  const ncclUniqueId identifier = share_identifier(host, call);
  ncclComm_t communicator = nullptr;
  check_nccl(ncclCommInitRank(&communicator, host.size(), identifier, host.rank()), call,
             "ncclCommInitRank");
  return std::make_shared<NcclBackend>(communicator, host.rank(), host.size(), device, limit);
}

}  // namespace fullshard
